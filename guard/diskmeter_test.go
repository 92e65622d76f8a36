package guard

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
)

// fakeLayers samples what containers wrote every so often, as a runtime does.
type fakeLayers struct {
	every time.Duration // 0 = never

	mu      sync.Mutex
	started time.Time
	wrote   map[string]int64
	asked   map[string]int
}

func (f *fakeLayers) WritableLayer(_ context.Context, id string) (cri.FsUsage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[id]++
	wrote, ok := f.wrote[id]
	if !ok {
		return cri.FsUsage{}, cri.ErrGone
	}
	if f.every == 0 {
		return cri.FsUsage{}, nil
	}
	rounds := time.Since(f.started) / f.every
	return cri.FsUsage{UsedBytes: wrote * int64(rounds), At: f.started.Add(rounds * f.every), Known: rounds > 0}, nil
}

func TestMeterAwaitsFreshSamples(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		after time.Duration // when the measuring begins
		took  time.Duration
		want  policy.DiskUsage
	}{
		{"the sample of before is not taken", 10 * time.Second, 15 * time.Second, 5 * time.Second, policy.DiskUsage{Rootfs: 14, Known: true}},
		{"a fresh sample is taken at once", 10 * time.Second, 20 * time.Second, 0, policy.DiskUsage{Rootfs: 14, Known: true}},
		{"a slow runtime is waited for in vain, for so long", time.Minute, 61 * time.Second, sampleWait, policy.DiskUsage{Rootfs: 7, Known: true}},
		{"a runtime that tells nothing is waited for, for so long", 0, time.Second, sampleWait, policy.DiskUsage{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeLayers{every: c.every, started: time.Now(), wrote: map[string]int64{"c": 7}, asked: map[string]int{}}
				m := &diskMeter{
					source: func() (layerSource, error) { return f, nil },
					root:   t.TempDir(), logs: t.TempDir(), now: cgroup.BootTime,
				}
				pods := []Pod{{Candidate: policy.Candidate{ID: "p"}, Containers: []PodContainer{{ID: "c"}}}}
				time.Sleep(c.after)
				started := time.Now()
				m.measureSince(t.Context(), pods, started)
				if took := time.Since(started); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if u, _ := m.usage("p"); u.bytes != c.want {
					t.Errorf("measured %+v, want %+v", u.bytes, c.want)
				}
			})
		})
	}
}

// A container that is gone, and a runtime that is, hold nobody up.
func TestMeterAwaitsNobodyInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLayers{every: time.Minute, started: time.Now(), wrote: map[string]int64{}, asked: map[string]int{}}
		m := &diskMeter{
			source: func() (layerSource, error) { return f, nil },
			root:   t.TempDir(), logs: t.TempDir(), now: cgroup.BootTime,
		}
		pods := []Pod{{Candidate: policy.Candidate{ID: "p"}, Containers: []PodContainer{{ID: "gone"}}}}
		started := time.Now()
		m.measureSince(t.Context(), pods, started)
		if f.asked["gone"] == 0 {
			t.Error("the runtime was not asked")
		}
		m.source = func() (layerSource, error) { return nil, ErrNoRuntime }
		m.measureSince(t.Context(), pods, started)
		if took := time.Since(started); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}
