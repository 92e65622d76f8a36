package reclaim

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
)

// Each removal checks its object again.
func TestCollectLooksOnceMore(t *testing.T) {
	t.Parallel()
	t.Run("a container that runs by now", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withDead(2, 10)
		w.rt.containers[1].State = cri.Created
		w.rt.faults["RemoveContainer a"] = func(context.Context) (bool, error) {
			w.rt.mu.Lock()
			defer w.rt.mu.Unlock()
			w.rt.containers[1].State = cri.Running
			return false, nil
		}
		r := w.Collect(t.Context(), anyContainer)[0]
		equal(t, "removed", ids(r.Removed), []string{"a"})
		if why(r.Kept, "b") != "runs again" || len(w.rt.called("RemoveContainer b")) != 0 {
			t.Errorf("b: %s", why(r.Kept, "b"))
		}
	})
	t.Run("a container whose state is lost is stopped first", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withDead(2, 10)
		w.rt.containers[0].State, w.rt.containers[1].State = cri.Unknown, cri.Unknown
		w.rt.sandboxes[0].Ready = false
		w.rt.faults["StopContainer b 10s"] = refuse
		r := w.Collect(t.Context(), anyContainer)[0]
		equal(t, "removed", ids(r.Removed), []string{"a"})
		equal(t, "calls", w.rt.called("StopContainer"), []string{"StopContainer a 10s", "StopContainer b 10s"})
		if !errors.Is(r.Err(), cri.ErrRefused) || len(w.rt.called("RemoveContainer b")) != 0 {
			t.Errorf("b was removed though it would not stop: %v", r.Err())
		}
	})
	t.Run("a container whose state is lost by now is left while its sandbox is ready, or may be", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			sandbox func(context.Context) (bool, error)
			ready   bool
			removed []string
			why     string
			err     error
		}{
			"ready":        {ready: true, removed: []string{"b"}, why: whyMayRun},
			"not ready":    {removed: []string{"a", "b"}, why: "not listed"},
			"gone":         {sandbox: gone, ready: true, removed: []string{"a", "b"}, why: "not listed"},
			"not answered": {sandbox: refuse, removed: []string{"b"}, why: "not listed", err: cri.ErrRefused},
		} {
			w := newWorld(Options{})
			w.withDead(2, 10)
			w.rt.sandboxes[0].Ready = c.ready
			w.rt.faults["ContainerStatus a"] = func(context.Context) (bool, error) {
				w.rt.mu.Lock()
				defer w.rt.mu.Unlock()
				w.rt.containers[0].State = cri.Unknown
				return false, nil
			}
			if c.sandbox != nil {
				w.rt.faults["Sandbox sb-p"] = c.sandbox
			}
			r := w.Collect(t.Context(), anyContainer)[0]
			equal(t, name, ids(r.Removed), c.removed)
			if got := why(r.Kept, "a"); got != c.why || !errors.Is(r.Err(), c.err) {
				t.Errorf("%s: a is kept: %s, errors: %v", name, got, r.Err())
			}
		}
	})
	t.Run("a container that is gone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		w.withDead(2, 10)
		w.rt.faults["ContainerStatus a"] = gone
		r := w.Collect(t.Context(), anyContainer)[0]
		equal(t, "removed", ids(r.Removed), []string{"b"})
		if len(r.Errors) != 0 || why(r.Kept, "a") != "gone already" {
			t.Errorf("a: %s, %v", why(r.Kept, "a"), r.Err())
		}
	})
	sandboxes := Plan{Steps: []Step{StepSandboxes}, Containers: ContainerPolicy{MaxPerContainer: 1, Max: -1}}
	twoDead := func(w world) {
		w.rt.sandboxes = []cri.Sandbox{
			{ID: "a", UID: "p", CreatedAt: epoch}, {ID: "b", UID: "p", Attempt: 1, CreatedAt: epoch}, {ID: "c", UID: "p", Attempt: 2, CreatedAt: epoch},
		}
	}
	t.Run("a sandbox that is ready by now", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		twoDead(w)
		w.rt.faults["Sandbox b"] = func(context.Context) (bool, error) {
			w.rt.mu.Lock()
			defer w.rt.mu.Unlock()
			for i := range w.rt.sandboxes {
				w.rt.sandboxes[i].Ready = w.rt.sandboxes[i].ID == "b"
			}
			return false, nil
		}
		r := w.Collect(t.Context(), sandboxes)[0]
		equal(t, "removed", ids(r.Removed), []string{"a"})
		if why(r.Kept, "b") != "ready again" || len(w.rt.called("StopSandbox b")) != 0 {
			t.Errorf("b: %s", why(r.Kept, "b"))
		}
	})
	t.Run("a sandbox that has a container by now", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		twoDead(w)
		w.rt.faults["Sandbox a"] = func(context.Context) (bool, error) {
			w.rt.mu.Lock()
			defer w.rt.mu.Unlock()
			w.rt.containers = []cri.Container{{ID: "x", SandboxID: "a"}}
			return false, nil
		}
		r := w.Collect(t.Context(), sandboxes)[0]
		equal(t, "removed", ids(r.Removed), []string{"b"})
		if why(r.Kept, "a") != "has containers" {
			t.Errorf("a: %s", why(r.Kept, "a"))
		}
	})
	t.Run("a sandbox that will not stop is not removed, and the next one is", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		twoDead(w)
		w.rt.faults["StopSandbox a"] = refuse
		r := w.Collect(t.Context(), sandboxes)[0]
		equal(t, "removed", ids(r.Removed), []string{"b"})
		if !errors.Is(r.Err(), cri.ErrRefused) || len(w.rt.called("RemoveSandbox a")) != 0 {
			t.Errorf("errors: %v", r.Err())
		}
	})
	t.Run("a sandbox that is gone is done", func(t *testing.T) {
		t.Parallel()
		w := newWorld(Options{})
		twoDead(w)
		w.rt.faults["StopSandbox a"], w.rt.faults["RemoveSandbox a"] = gone, gone
		r := w.Collect(t.Context(), sandboxes)[0]
		equal(t, "removed", ids(r.Removed), []string{"a", "b"})
		if len(r.Errors) != 0 {
			t.Errorf("errors: %v", r.Err())
		}
	})
	t.Run("the log of a pod that is back", func(t *testing.T) {
		t.Parallel()
		logs := filepath.Join(t.TempDir(), "pods")
		write(t, logs+"/n_p_p/c/0.log", 1, epoch)
		write(t, logs+"/n_q_q/c/0.log", 1, epoch)
		w := newWorld(Options{Logs: logsIn(logs)})
		w.rt.sandboxes = []cri.Sandbox{sandbox("a", "p", true, epoch)}
		lists := 0
		w.rt.faults["Sandboxes"] = func(context.Context) (bool, error) {
			w.rt.mu.Lock()
			defer w.rt.mu.Unlock()
			if lists++; lists == 2 {
				w.rt.sandboxes = append(w.rt.sandboxes, sandbox("b", "q", true, epoch))
			}
			return false, nil
		}
		r := w.Collect(t.Context(), Plan{Steps: []Step{StepLogs}})[0]
		if len(r.Removed) != 0 || why(r.Kept, "n_q_q") != "its pod is back" || !exists(logs+"/n_q_q") {
			t.Errorf("report: %+v", r)
		}
	})
}

// A dead sandbox may take its network plugin two minutes, but not while a disk is short: neither does a reclaim wait that
// long, nor a collection that a reclaim waits for. What hung once is not given as long again for a while.
func TestCollectSandboxesOfASlowNetwork(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context) (bool, error) {
		select {
		case <-time.After(90 * time.Second):
			return false, nil
		case <-ctx.Done():
			return hang(ctx)
		}
	}
	quiet := Plan{Steps: []Step{StepSandboxes}, Containers: ContainerPolicy{MaxPerContainer: 1, Max: -1}}
	pressed := quiet
	pressed.Containers.Finished = true
	for name, c := range map[string]struct {
		plan    Plan
		fault   func(context.Context) (bool, error)
		enough  time.Duration // when a reclaim needs the turn
		ends    time.Duration // when the job's own time is up
		removed []string
		took    time.Duration
		stuck   int
	}{
		"in quiet times":           {plan: quiet, fault: slow, removed: []string{"a", "b"}, took: 3 * time.Minute},
		"under pressure":           {plan: pressed, fault: slow, took: 2 * stopSandboxIn, stuck: 2},
		"it hangs":                 {plan: quiet, fault: hang, took: stopDeadSandboxIn + stopSandboxIn, stuck: 2},
		"a reclaim waits":          {plan: quiet, fault: slow, enough: 10 * time.Second, took: 10 * time.Second},
		"the job's time is up":     {plan: quiet, fault: slow, ends: 10 * time.Second, took: 10 * time.Second},
		"there is little time":     {plan: pressed, fault: slow, ends: 2 * time.Second, took: 2 * time.Second},
		"a reclaim begins at once": {plan: quiet, fault: slow, enough: time.Nanosecond, took: time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Options{})
				w.rt.sandboxes = []cri.Sandbox{
					{ID: "a", UID: "p", CreatedAt: epoch}, {ID: "b", UID: "p", Attempt: 1, CreatedAt: epoch}, {ID: "c", UID: "p", Attempt: 2, CreatedAt: epoch},
				}
				w.rt.faults["StopSandbox"] = c.fault
				ctx, cancel := context.WithCancel(t.Context())
				if c.ends > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.ends)
				}
				defer cancel()
				if c.enough > 0 {
					enough := make(chan struct{})
					time.AfterFunc(c.enough, func() { close(enough) })
					c.plan.Enough = enough
				}
				started := time.Now()
				r := w.Collect(ctx, c.plan)[0]
				equal(t, "removed", ids(r.Removed), c.removed)
				if c.enough > 0 && len(r.Errors) > 0 {
					t.Errorf("a stop that yields is an error: %v", r.Errors)
				}
				if took := time.Since(started); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				if got := len(w.stuckAt(w.clock.now().Boot)); got != c.stuck {
					t.Errorf("%d are stuck, want %d", got, c.stuck)
				}
				c.plan.Enough, started = nil, time.Now()
				if w.rt.faults["StopSandbox"] = hang; c.stuck > 0 {
					if w.Collect(t.Context(), c.plan); time.Since(started) != 2*stopSandboxIn {
						t.Errorf("the next run took %s", time.Since(started))
					}
				}
			})
		})
	}
}

// A dead sandbox with a slow network plugin is given the long wait again after a while, although every collection in between hangs.
func TestCollectSandboxesOfASlowNetworkAgain(t *testing.T) {
	t.Parallel()
	quiet := Plan{Steps: []Step{StepSandboxes}}
	pressed := Plan{Steps: []Step{StepSandboxes}, Containers: ContainerPolicy{Finished: true}}
	for name, first := range map[string]Plan{"under pressure": pressed, "in quiet times": quiet} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(Options{})
				w.rt.sandboxes = []cri.Sandbox{{ID: "a", UID: "p", CreatedAt: epoch}, {ID: "b", UID: "p", Attempt: 1, CreatedAt: epoch}}
				w.rt.faults["StopSandbox"] = hang
				w.Collect(t.Context(), first)
				w.rt.faults["StopSandbox"] = func(ctx context.Context) (bool, error) {
					select {
					case <-time.After(30 * time.Second):
						return false, nil
					case <-ctx.Done():
						return hang(ctx)
					}
				}
				for range 2 * int(stuckFor/time.Minute) {
					w.clock.add(time.Minute)
					w.Collect(t.Context(), quiet)
				}
				if len(w.rt.called("RemoveSandbox a")) == 0 {
					t.Errorf("still there after %s and %d attempts", 2*stuckFor, len(w.rt.called("StopSandbox a")))
				}
			})
		})
	}
}
