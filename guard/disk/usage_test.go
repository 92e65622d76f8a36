package disk

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// fakeLayers samples the writable layers at an interval, as a runtime does.
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

func (f *fakeLayers) ExitedLayer(ctx context.Context, id string) (cri.FsUsage, error) {
	return f.WritableLayer(ctx, id)
}

// What an exited container wrote belongs to its pod. One whose size is not known holds nothing back.
func TestMeterCountsExitedContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLayers{every: time.Second, started: time.Now(), wrote: map[string]int64{"c": 7, "exited": 5}, asked: map[string]int{}}
		m := &Meter{
			source: func() (LayerSource, error) { return f, nil },
			paths:  only(t.TempDir()), logs: t.TempDir(), now: cgroup.BootTime,
		}
		time.Sleep(time.Second)
		m.Measure(t.Context(), []inventory.Pod{{
			Candidate: policy.Candidate{ID: "p"}, Containers: []inventory.Container{{ID: "c"}}, Ended: []string{"exited", "gone"},
		}})
		if u, _ := m.Usage("p"); u.Bytes.Rootfs != policy.Exactly(12) {
			t.Errorf("measured %+v", u.Bytes)
		}
	})
}

func TestMeterAwaitsFreshSamples(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		after time.Duration // when the measurement begins
		took  time.Duration
		want  policy.Measured
	}{
		{"the sample of before is not taken", 10 * time.Second, 15 * time.Second, 5 * time.Second, policy.Exactly(14)},
		{"a fresh sample is taken at once", 10 * time.Second, 20 * time.Second, 0, policy.Exactly(14)},
		{"a slow runtime is waited for in vain, for so long, and has said too little", time.Minute, 61 * time.Second, SampleTimeout, policy.AtLeast(7)},
		{"a runtime that tells nothing is waited for, for so long", 0, time.Second, SampleTimeout, policy.Measured{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeLayers{every: c.every, started: time.Now(), wrote: map[string]int64{"c": 7}, asked: map[string]int{}}
				m := &Meter{
					source: func() (LayerSource, error) { return f, nil },
					paths:  only(t.TempDir()), logs: t.TempDir(), now: cgroup.BootTime,
				}
				pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "p"}, Containers: []inventory.Container{{ID: "c"}}}}
				time.Sleep(c.after)
				started := time.Now()
				m.MeasureSince(t.Context(), pods, started)
				if took := time.Since(started); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if u, _ := m.Usage("p"); u.Bytes.Rootfs != c.want {
					t.Errorf("measured %+v, want %+v", u.Bytes, c.want)
				}
			})
		})
	}
}

// walkingLayers measures a layer when it is asked, as CRI-O does.
type walkingLayers struct {
	LayerSource
	mu               sync.Mutex
	asked, now, most int
}

func (w *walkingLayers) WritableLayer(context.Context, string) (cri.FsUsage, error) {
	w.count(1)
	defer w.count(-1)
	time.Sleep(slowPod / 2)
	return cri.FsUsage{UsedBytes: 7, Known: true, At: time.Now()}, nil
}

func (w *walkingLayers) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now += n
	w.asked, w.most = w.asked+max(n, 0), max(w.most, w.now)
}

// A runtime that walks a layer when it is asked is asked once for each, and for a few at a time, however many reclaims measure the pods
// at once.
func TestMeterAsksARuntimeThatWalksOnce(t *testing.T) {
	for callers := range 4 {
		synctest.Test(t, func(t *testing.T) {
			w := &walkingLayers{}
			m := newTestMeter(t, w)
			pods := make([]inventory.Pod, 5*podsAtOnce)
			for i := range pods {
				id := strconv.Itoa(i)
				pods[i] = inventory.Pod{Candidate: policy.Candidate{ID: id}, Containers: []inventory.Container{{ID: id}}}
			}
			began := time.Now()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() { m.MeasureSince(t.Context(), pods, began) })
			}
			m.MeasureSince(t.Context(), pods, began)
			all.Wait()
			if took := time.Since(began); took != 5*slowPod/2 || w.asked != len(pods) || w.most != podsAtOnce {
				t.Errorf("beside %d others: took %s, asked %d times, %d at once", callers, took, w.asked, w.most)
			}
			for i := range pods {
				if u, _ := m.Usage(pods[i].ID); u.Bytes.Rootfs != policy.Exactly(7) {
					t.Errorf("%+v", u.Bytes)
				}
			}
		})
	}
}

// Neither a missing container nor an unavailable runtime delays a measurement.
func TestMeterAwaitsNobodyInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLayers{every: time.Minute, started: time.Now(), wrote: map[string]int64{}, asked: map[string]int{}}
		m := &Meter{
			source: func() (LayerSource, error) { return f, nil },
			paths:  only(t.TempDir()), logs: t.TempDir(), now: cgroup.BootTime,
		}
		pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "p"}, Containers: []inventory.Container{{ID: "gone"}}}}
		started := time.Now()
		m.MeasureSince(t.Context(), pods, started)
		if f.asked["gone"] == 0 {
			t.Error("the runtime was not asked")
		}
		m.source = func() (LayerSource, error) { return nil, cri.ErrNoRuntime }
		m.MeasureSince(t.Context(), pods, started)
		if took := time.Since(started); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// hangingLayers hangs for one container and ignores the context.
type hangingLayers struct {
	LayerSource
	release chan struct{}
	asked   chan string
}

func (h *hangingLayers) WritableLayer(_ context.Context, id string) (cri.FsUsage, error) {
	if h.asked <- id; id == "hangs" {
		<-h.release
	}
	return cri.FsUsage{UsedBytes: 7, Known: true}, nil
}

// A hung mount below one pod does not delay the measurements of the others, even if repeated.
func TestMeterGoesOnWithoutWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hangingLayers{release: make(chan struct{}), asked: make(chan string, 10)}
		start := time.Now()
		m := &Meter{
			source: func() (LayerSource, error) { return h, nil },
			paths:  only(t.TempDir()), logs: t.TempDir(), now: func() time.Duration { return time.Since(start) },
		}
		pod := func(id string) inventory.Pod {
			return inventory.Pod{Candidate: policy.Candidate{ID: id}, Containers: []inventory.Container{{ID: id}}}
		}
		pods := []inventory.Pod{pod("hangs"), pod("other")}
		for round := range 2 {
			m.Measure(t.Context(), pods)
			if u, ok := m.Usage("other"); !ok || u.Bytes.Rootfs != policy.Exactly(7) {
				t.Errorf("round %d: other %+v, %v", round, u, ok)
			}
			if u, _ := m.Usage("hangs"); u.Bytes.Known() {
				t.Errorf("round %d: what hangs is known: %+v", round, u)
			}
			if _, unasked := m.Unmeasured(pods); unasked {
				t.Errorf("round %d: all were asked", round)
			}
		}
		if took := time.Since(start); took != measureTimeout || len(h.asked) != 3 {
			t.Errorf("two rounds took %v and asked %d times: what hangs is asked once", took, len(h.asked))
		}
		close(h.release)
		synctest.Wait()
		if m.Measure(t.Context(), pods); !func() bool { u, _ := m.Usage("hangs"); return u.Bytes.Known() }() {
			t.Error("it is measured again when it hangs no more")
		}
	})
}
