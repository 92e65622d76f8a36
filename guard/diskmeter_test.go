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

// hangingLayers hangs for one container, whatever the context says.
type hangingLayers struct {
	release chan struct{}
	asked   chan string
}

func (h *hangingLayers) WritableLayer(_ context.Context, id string) (cri.FsUsage, error) {
	if h.asked <- id; id == "hangs" {
		<-h.release
	}
	return cri.FsUsage{UsedBytes: 7, Known: true}, nil
}

// A mount that hangs below one pod keeps nobody from measuring the others, again and again.
func TestMeterGoesOnWithoutWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hangingLayers{release: make(chan struct{}), asked: make(chan string, 10)}
		start := time.Now()
		m := &diskMeter{
			source: func() (layerSource, error) { return h, nil },
			root:   t.TempDir(), logs: t.TempDir(), now: func() time.Duration { return time.Since(start) },
		}
		pod := func(id string) Pod {
			return Pod{Candidate: policy.Candidate{ID: id}, Containers: []PodContainer{{ID: id}}}
		}
		pods := []Pod{pod("hangs"), pod("other")}
		for round := range 2 {
			m.measure(t.Context(), pods)
			if u, ok := m.usage("other"); !ok || u.bytes.Rootfs != 7 {
				t.Errorf("round %d: other %+v, %v", round, u, ok)
			}
			if u, _ := m.usage("hangs"); u.bytes.Known {
				t.Errorf("round %d: what hangs is known: %+v", round, u)
			}
			if _, unasked := m.stranger(pods); unasked {
				t.Errorf("round %d: all were asked", round)
			}
		}
		if took := time.Since(start); took != diskMeasure || len(h.asked) != 3 {
			t.Errorf("two rounds took %v and asked %d times: what hangs is asked once", took, len(h.asked))
		}
		close(h.release)
		synctest.Wait()
		if m.measure(t.Context(), pods); !func() bool { u, _ := m.usage("hangs"); return u.bytes.Known }() {
			t.Error("it is measured again when it hangs no more")
		}
	})
}
