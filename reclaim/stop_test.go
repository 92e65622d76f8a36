package reclaim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
)

func TestStopHard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode("a", "b")
		s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a", "b"), Fallback: true})
		r := settled(t, s)
		if !r.Emptied || !about(r.EmptiedAfter, 0) || r.Method != ByRuntime || r.Killed != 0 || r.Nothing {
			t.Errorf("report: %+v", r)
		}
		<-s.Finished()
		if r := s.Report(); !r.Confirmed || len(r.Errors) != 0 {
			t.Errorf("report: %+v", r)
		}
		calls := n.seen()
		slices.Sort(calls)
		equal(t, "calls", calls, []string{"0s kill /kubepods/podx/sb", "0s stop a 0s", "0s stop b 0s", "0s stop sandbox"})
	})
}

func TestStopSoft(t *testing.T) {
	t.Parallel()
	soft := StopRequest{Victim: victim("a", "b"), Grace: 30 * time.Second, Fallback: true}
	t.Run("containers that obey", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.obeys["a"], n.obeys["b"] = time.Second, 3*time.Second
			s := NewStops(n, n).Stop(t.Context(), soft)
			r := settled(t, s)
			if !about(r.EmptiedAfter, 3*time.Second) || r.Method != ByRuntime {
				t.Errorf("report: %+v", r)
			}
			<-s.Finished()
			calls := n.seen()
			slices.Sort(calls)
			equal(t, "calls", calls, []string{"0s stop a 30s", "0s stop b 30s", "3s kill /kubepods/podx/sb", "3s stop sandbox"})
		})
	})
	t.Run("a container that does not obey is killed by the runtime", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.obeys["a"] = time.Second
			s := NewStops(n, n).Stop(t.Context(), soft)
			if r := settled(t, s); !about(r.EmptiedAfter, 30*time.Second) || r.Method != ByRuntime {
				t.Errorf("report: %+v", r)
			}
		})
	})
	t.Run("a container whose call fails is asked again while another one takes its time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("slow", "b")
			n.stopErr["b"], n.obeys["b"] = cri.ErrUnavailable, time.Second
			time.AfterFunc(100*time.Millisecond, func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				delete(n.stopErr, "b")
			})
			s := NewStops(n, n).Stop(t.Context(), soft)
			settled(t, s)
			if calls := n.seen(); !slices.Contains(calls, "250ms stop b 29.75s") {
				t.Errorf("calls: %q", calls)
			}
		})
	})
	t.Run("a container that is not listed keeps its grace period", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a")
			n.obeys["a"], n.procs["/kubepods/podx/new"] = time.Second, 1
			time.AfterFunc(10*time.Second, func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				n.procs["/kubepods/podx/new"] = 0
			})
			r := soft
			r.Victim = victim("a")
			r.Victim.Unlisted = []string{"/kubepods/podx/new"}
			s := NewStops(n, n).Stop(t.Context(), r)
			<-s.Finished()
			calls := n.seen()
			at, what, _ := strings.Cut(calls[len(calls)-1], " ")
			if d, err := time.ParseDuration(at); err != nil || what != "stop sandbox" || d < 10*time.Second || d > 20*time.Second {
				t.Errorf("calls: %q", calls)
			}
		})
	})
	t.Run("a runtime that fails early does not cut the grace period short", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.stopErr["a"], n.stopErr["b"] = cri.ErrRefused, cri.ErrUnavailable
			s := NewStops(n, n).Stop(t.Context(), soft)
			if r := settled(t, s); r.Method != ByFallback || !about(r.EmptiedAfter, 32*time.Second) {
				t.Errorf("report: %+v", r)
			}
			for _, call := range n.seen() {
				at, what, _ := strings.Cut(call, " ")
				d, err := time.ParseDuration(at)
				if err != nil {
					t.Fatal(err)
				}
				if d < 30*time.Second && (what == "stop sandbox" || strings.HasPrefix(what, "kill") || strings.HasSuffix(what, " 0s")) {
					t.Errorf("within the grace period: %s", call)
				}
			}
		})
	})
}

func TestStopDirect(t *testing.T) {
	t.Parallel()
	direct := StopRequest{Victim: victim("a", "b"), Direct: true, Fallback: true}
	t.Run("the kernel comes before the runtime, in the caller", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			s := NewStops(n, n).Stop(t.Context(), direct)
			// From here on, the runtime's calls may come at any moment.
			seen := n.seen()
			equal(t, "when Stop returns", seen[:min(3, len(seen))], []string{"0s kill /kubepods/podx/a", "0s kill /kubepods/podx/b", "0s kill /kubepods/podx/sb"})
			r := settled(t, s)
			if !r.Emptied || r.EmptiedAfter != 0 || r.Method != ByDirect || r.Killed != 6 || r.Nothing {
				t.Errorf("report: %+v", r)
			}
			<-s.Finished()
			if !s.Report().Confirmed || len(n.seen()) != 6 {
				t.Errorf("calls: %q", n.seen())
			}
		})
	})
	t.Run("the runtime is asked when the processes have ended, or have had their time", func(t *testing.T) {
		t.Parallel()
		for ends, want := range map[time.Duration]string{4 * time.Millisecond: "7ms stop b 0s", time.Second: "250ms stop b 0s"} {
			synctest.Test(t, func(t *testing.T) {
				n := newNode("b")
				n.stubborn["/kubepods/podx/b"] = 1 // the kernel is still tearing it down
				time.AfterFunc(ends, func() {
					n.mu.Lock()
					defer n.mu.Unlock()
					n.stubborn["/kubepods/podx/b"], n.procs["/kubepods/podx/b"] = 0, 0
				})
				s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("b"), Direct: true, Fallback: true})
				<-s.Finished()
				if calls := n.seen(); !slices.Contains(calls, want) {
					t.Errorf("a process that ends after %v: %q, want %q", ends, calls, want)
				}
			})
		}
	})
	t.Run("a hung runtime changes nothing, and is asked again until it answers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a")
			n.hang(true)
			s := NewStops(n, n).Stop(t.Context(), direct)
			if r := settled(t, s); !r.Emptied || r.EmptiedAfter != 0 || r.Confirmed || len(r.Errors) != 0 {
				t.Errorf("report: %+v", r)
			}
			time.Sleep(25 * time.Second)
			n.hang(false)
			<-s.Finished()
			if r := s.Report(); !r.Confirmed || r.ConfirmedAfter < 25*time.Second || !errors.Is(r.Errors[0], cri.ErrTimeout) {
				t.Errorf("report: %+v", r)
			}
		})
	})
	t.Run("a runtime that hangs for ever is given up on", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a")
			n.hang(true)
			s := NewStops(n, n).Stop(t.Context(), direct)
			<-s.Finished()
			if took := time.Since(n.started); took > chaseFor+DefaultStopTimeout || s.Report().Confirmed || !s.Report().Emptied {
				t.Errorf("after %v: %+v", took, s.Report())
			}
		})
	})
	t.Run("what was forked meanwhile is killed, too", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.hang(true)
			n.stubborn["/kubepods/podx/a"] = 1
			s := NewStops(n, n).Stop(t.Context(), direct)
			synctest.Wait()
			n.mu.Lock()
			n.stubborn["/kubepods/podx/a"] = 0
			n.mu.Unlock()
			if r := settled(t, s); !about(r.EmptiedAfter, rekillEvery) || r.Killed != 7 || r.Method != ByDirect {
				t.Errorf("report: %+v", r)
			}
		})
	})
	t.Run("what cannot be killed is given up on", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.hang(true)
			n.stubborn["/kubepods/podx/a"] = 1
			s := NewStops(n, n).Stop(t.Context(), direct)
			r := settled(t, s)
			if r.Emptied || r.Nothing || r.Killed < 6 || !about(time.Since(n.started), DefaultStopTimeout+10*time.Second) {
				t.Errorf("after %v: %+v", time.Since(n.started), r)
			}
			if last := r.Errors[len(r.Errors)-1].Error(); last != "stop default/x: 1 of 2 containers have not ended" {
				t.Errorf("says: %s", last)
			}
		})
	})
}

func TestStopFallback(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		grace   time.Duration
		timeout time.Duration
		at      time.Duration
	}{
		{"of a hard stop", 0, 0, DefaultStopTimeout},
		{"of a soft stop", 30 * time.Second, 0, 30*time.Second + DefaultStopTimeout},
		{"with a timeout of its own", 0, 5 * time.Second, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode("a", "b")
				n.hang(true)
				s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a", "b"), Grace: tt.grace, StopTimeout: tt.timeout, Fallback: true})
				r := settled(t, s)
				if !about(r.EmptiedAfter, tt.at) || r.Method != ByFallback || r.Killed != 6 || r.Nothing {
					t.Errorf("report: %+v", r)
				}
				n.hang(false)
				<-s.Finished()
				if !s.Report().Confirmed {
					t.Error("the runtime was not asked any more")
				}
			})
		})
	}
	t.Run("switched off", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a")
			n.hang(true)
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a")})
			r := settled(t, s)
			if r.Emptied || !r.Nothing || !about(time.Since(n.started), DefaultStopTimeout+10*time.Second) {
				t.Errorf("after %v: %+v", time.Since(n.started), r)
			}
			for _, call := range n.seen() {
				if strings.Contains(call, "kill") {
					t.Error(call)
				}
			}
			n.hang(false)
			<-s.Finished()
			if populated, _ := n.Populated("/kubepods/podx/a"); !populated {
				t.Error("what was given up killed somebody later")
			}
		})
	})
	t.Run("not for a runtime that is only late with its answer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a")
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a"), Fallback: true, Grace: time.Second})
			n.hang(false)
			if r := settled(t, s); r.Method != ByRuntime || r.Killed != 0 {
				t.Errorf("report: %+v", r)
			}
		})
	})
}

func TestStopEscalate(t *testing.T) {
	t.Parallel()
	soft := StopRequest{Victim: victim("a", "b"), Grace: 7 * time.Hour, Fallback: true}
	t.Run("ends the grace period by a second call", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.obeys["b"] = time.Second
			s := NewStops(n, n).Stop(t.Context(), soft)
			time.Sleep(5 * time.Second)
			s.Escalate(false, nil)
			s.Escalate(false, nil)
			r := settled(t, s)
			if !about(r.EmptiedAfter, 5*time.Second) || r.Method != ByRuntime || r.Nothing {
				t.Errorf("report: %+v", r)
			}
			<-s.Finished()
			s.Escalate(false, nil)
			if !s.Report().Confirmed || !about(s.Report().ConfirmedAfter, 5*time.Second) {
				t.Errorf("report: %+v", s.Report())
			}
			calls := n.seen()
			slices.Sort(calls[:2])
			equal(t, "calls", calls[:3], []string{"0s stop a 7h0m0s", "0s stop b 7h0m0s", "5s stop a 0s"})
		})
	})
	t.Run("with a hung runtime the fallback comes soon", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.hang(true)
			s := NewStops(n, n).Stop(t.Context(), soft)
			time.Sleep(5 * time.Second)
			s.Escalate(false, nil)
			if r := settled(t, s); !about(r.EmptiedAfter, 5*time.Second+DefaultStopTimeout) || r.Method != ByFallback {
				t.Errorf("report: %+v", r)
			}
		})
	})
	t.Run("with a container that has started since", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.hang(true)
			s := NewStops(n, n).Stop(t.Context(), soft)
			time.Sleep(time.Second)
			n.mu.Lock()
			n.procs["/kubepods/podx/c"], n.procs["/kubepods/pody/d"] = 2, 1
			n.mu.Unlock()
			s.Escalate(true, []string{"/kubepods/podx/c", "/kubepods/pody/d", "/kubepods/podx/a"})
			if r := settled(t, s); !r.Emptied || n.procs["/kubepods/podx/c"] != 0 || n.procs["/kubepods/pody/d"] != 1 {
				t.Errorf("report: %+v, left: %v", r, n.procs)
			}
		})
	})
	t.Run("directly, in the caller", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.hang(true)
			s := NewStops(n, n).Stop(t.Context(), soft)
			time.Sleep(4 * time.Second)
			s.Escalate(false, nil)
			time.Sleep(time.Second)
			s.Escalate(true, nil)
			if last := n.seen()[len(n.seen())-1]; last != "5s kill /kubepods/podx/sb" {
				t.Errorf("when Escalate returns: %q", n.seen())
			}
			if r := settled(t, s); !about(r.EmptiedAfter, 5*time.Second) || r.Method != ByDirect || r.Killed != 6 {
				t.Errorf("report: %+v", r)
			}
		})
	})
	t.Run("while the runtime is asked again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.stopErr["a"], n.stopErr["b"] = cri.ErrUnavailable, cri.ErrUnavailable
			s := NewStops(n, n).Stop(t.Context(), soft)
			time.Sleep(20 * time.Second)
			n.mu.Lock()
			clear(n.stopErr)
			n.mu.Unlock()
			s.Escalate(false, nil)
			if r := settled(t, s); !about(r.EmptiedAfter, 20*time.Second) || r.Method != ByRuntime {
				t.Errorf("report: %+v", r)
			}
		})
	})
}
