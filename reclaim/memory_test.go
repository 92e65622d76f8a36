package reclaim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type fakeMemory struct {
	asked []string
	err   map[string]error
	took  time.Duration
}

func (f *fakeMemory) MemoryReclaim(rel string, bytes int64) error {
	time.Sleep(f.took)
	f.asked = append(f.asked, rel)
	return f.err[rel]
}

func TestReclaimMemory(t *testing.T) {
	t.Parallel()
	plan := Plan{Steps: []Step{StepMemory}, Memory: []MemoryTarget{{"/a", "a", 3 * memoryChunk}, {"/b", "b", memoryChunk}, {"/c", "c", 1}}}
	run := func(t *testing.T, m *fakeMemory, p Plan) Report {
		w := newWorld(Options{Memory: m})
		return w.Collect(t.Context(), p)[0]
	}
	t.Run("piece by piece, in order", func(t *testing.T) {
		t.Parallel()
		m := &fakeMemory{}
		r := run(t, m, plan)
		equal(t, "asked", m.asked, []string{"/a", "/a", "/a", "/b", "/c"})
		if r.Removed[0].Size != 3*memoryChunk || r.Removed[2].Size != 1 {
			t.Errorf("removed: %+v", r.Removed)
		}
	})
	t.Run("until the target is met", func(t *testing.T) {
		t.Parallel()
		m := &fakeMemory{}
		r := run(t, m, plan.until(func(context.Context) (Room, error) {
			return Room{Bytes: int64(len(m.asked)), LackBytes: int64(2 - len(m.asked))}, nil
		}))
		equal(t, "asked", m.asked, []string{"/a", "/a"})
		if len(r.Kept) != 2 || r.Kept[0].Why != whyMet || !r.Met || r.Freed != 2 {
			t.Errorf("report: %+v", r)
		}
	})
	t.Run("a cgroup with no more to give, one that fails", func(t *testing.T) {
		t.Parallel()
		m := &fakeMemory{err: map[string]error{"/b": errBoom}}
		r := run(t, m, plan.until(func(context.Context) (Room, error) { return Room{LackBytes: 1}, nil }))
		equal(t, "asked", m.asked, []string{"/a", "/b", "/c"})
		if len(r.Removed) != 2 || !errors.Is(r.Err(), errBoom) || len(r.Errors) != 1 {
			t.Errorf("report: %+v", r)
		}
	})
	t.Run("not for long", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m := &fakeMemory{took: 300 * time.Millisecond}
			r := run(t, m, plan)
			equal(t, "asked", m.asked, []string{"/a", "/a"})
			if len(r.Kept) != 2 || r.Kept[0].Why != "no time left" {
				t.Errorf("kept: %+v", r.Kept)
			}
		})
	})
	t.Run("beside a removal that takes long", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m := &fakeMemory{}
			w := newWorld(Options{Memory: m})
			w.withDead(2, 10)
			w.rt.faults["RemoveContainer"] = hang
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan []Report)
			go func() { ended <- w.Collect(ctx, anyContainer) }()
			synctest.Wait()
			started := time.Now()
			if r := w.Collect(t.Context(), plan); len(r) != 1 || len(r[0].Removed) != 3 || time.Since(started) != 0 {
				t.Errorf("after %v: %+v", time.Since(started), r)
			}
			cancel()
			<-ended
		})
	})
	t.Run("where the kernel cannot", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		r := w.Collect(t.Context(), plan)[0]
		if len(r.Removed) != 0 || len(r.Kept) != 3 {
			t.Errorf("report: %+v", r)
		}
	})
	t.Run("a dry run asks nobody", func(t *testing.T) {
		t.Parallel()
		m := &fakeMemory{}
		p := plan.until(func(context.Context) (Room, error) { return Room{LackBytes: 2 * memoryChunk}, nil })
		p.DryRun = true
		r := run(t, m, p)
		if len(m.asked) != 0 || len(r.Removed) != 1 || r.Removed[0].Size != 2*memoryChunk || len(r.Kept) != 2 {
			t.Errorf("report: %+v", r)
		}
	})
}
