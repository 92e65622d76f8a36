package reclaim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
)

// Without a known cgroup, the runtime's word is all there is.
func TestStopUnknownCgroups(t *testing.T) {
	t.Parallel()
	v := victim("a", "b")
	v.Containers[0].Cgroup = ""
	t.Run("the runtime stops it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.obeys["a"], n.obeys["b"] = 4*time.Second, time.Second
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: v, Grace: 30 * time.Second, Fallback: true})
			if r := settled(t, s); !r.Emptied || !about(r.EmptiedAfter, 4*time.Second) || r.Nothing {
				t.Errorf("report: %+v", r)
			}
		})
	})
	t.Run("a hung runtime cannot, and the rest is killed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.hang(true)
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: v, Direct: true, Fallback: true})
			r := settled(t, s)
			if r.Emptied || r.Nothing || r.Killed != 3 {
				t.Errorf("report: %+v", r)
			}
			for _, call := range n.seen() {
				if strings.HasSuffix(call, "kill /kubepods/podx/a") {
					t.Error(call)
				}
			}
		})
	})
}

// Whatever the runtime said about a container's cgroup, a pod's own is never
// killed, nor anything that is not one container's.
func TestStopNeverKillsThePodCgroup(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pod    string
		leaves []string
	}{
		"the pod's own":                {"/kubepods/podx", []string{"/kubepods/podx"}},
		"the pod's own, written oddly": {"kubepods/podx/", []string{"//kubepods/./podx/"}},
		"above the pod":                {"/kubepods/podx", []string{"/kubepods"}},
		"beside the pod":               {"/kubepods/podx", []string{"/system.slice/sshd.service"}},
		"alike by its beginning":       {"/kubepods/podx", []string{"/kubepods/podxy/c"}},
		"out of the pod by dots":       {"/kubepods/podx", []string{"/kubepods/podx/../pody/c"}},
		"upwards and down again":       {"/kubepods/podx", []string{"../kubepods/podx/c"}},
		"the root":                     {"", []string{"/"}},
		"above the root":               {"", []string{"../.."}},
		"the same for two":             {"/p", []string{"/p/c", "/p/c"}},
		"above another one":            {"", []string{"/p-0", "/p-0/c-1"}},
		"of all pods, of no known pod": {"", []string{"/kubepods"}},
		"of logins, of no known pod":   {"", []string{"/user.slice"}},
		"below its own":                {"", []string{"/k8s.io/0/init"}},
		"another's":                    {"", []string{"/system.slice/cri-containerd-10.scope"}},
		"another's, named after it":    {"", []string{"/kubepods/0/cri-containerd-1.scope"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.hang(true)
				v := Victim{SandboxID: "sb", Pod: "default/x", Cgroup: tt.pod}
				for i, leaf := range tt.leaves {
					v.Containers = append(v.Containers, VictimContainer{ID: fmt.Sprint(i), Name: "c", Cgroup: leaf})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s := NewStops(n, n).Stop(ctx, StopRequest{Victim: v, Direct: true, Fallback: true})
				s.Escalate(true)
				<-s.Finished()
				for _, call := range n.seen() {
					if strings.Contains(call, "kill") && !strings.HasSuffix(call, "kill /p-0/c-1") {
						t.Error(call)
					}
				}
				if !strings.Contains(fmt.Sprint(s.Report().Errors), "is not that of one container") {
					t.Errorf("not told: %v", s.Report().Errors)
				}
			})
		})
	}
}

// Of a pod whose own cgroup is not known, what is named by the container is killed, under
// either driver of cgroups.
func TestStopKillsWhatBearsTheContainersID(t *testing.T) {
	t.Parallel()
	const id = "3b1e0a5c7f2d"
	for _, leaf := range []string{
		"/k8s.io/" + id, "/kubepods/besteffort/podx/" + id, "/kubepods/podx/crio-" + id, "/crio/crio-" + id,
		"/system.slice/crio-" + id + ".scope", "/kubepods.slice/kubepods-podx.slice/cri-containerd-" + id + ".scope",
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.hang(true)
			n.procs[leaf] = 3
			v := Victim{SandboxID: "sb", Pod: "default/x", Containers: []VictimContainer{{ID: id, Name: "c", Cgroup: leaf}}}
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: v, Direct: true})
			if r := settled(t, s); !r.Emptied || r.Method != ByDirect || r.Killed != 3 {
				t.Errorf("%s: %+v", leaf, r)
			}
		})
	}
}

func TestStopNothing(t *testing.T) {
	t.Parallel()
	t.Run("all gone already", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.procs["/kubepods/podx/b"] = 0
			n.stopErr["a"], n.stopErr["sb"] = cri.ErrGone, cri.ErrGone
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a", "b"), Direct: true, Fallback: true})
			r := settled(t, s)
			if !r.Emptied || !r.Nothing || r.EmptiedAfter != 0 || r.Killed != 0 || len(r.Errors) != 0 {
				t.Errorf("report: %+v", r)
			}
			<-s.Finished()
			if r := s.Report(); !r.Confirmed || !r.Nothing {
				t.Errorf("report: %+v", r)
			}
		})
	})
	t.Run("nobody could be reached", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a")
			n.stopErr["a"], n.stopErr["sb"] = cri.ErrUnavailable, cri.ErrUnavailable
			n.killErr["/kubepods/podx/a"] = fs.ErrPermission
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a"), Direct: true, Fallback: true})
			r := settled(t, s)
			if r.Emptied || !r.Nothing || !errors.Is(errors.Join(r.Errors...), fs.ErrPermission) || !errors.Is(errors.Join(r.Errors...), cri.ErrUnavailable) {
				t.Errorf("report: %+v", r)
			}
			if len(r.Errors) > 5 {
				t.Errorf("the same again and again: %q", r.Errors)
			}
		})
	})
	t.Run("a sandbox without containers is the runtime's alone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim(), Direct: true, Fallback: true})
			if r := settled(t, s); !r.Emptied || !r.Confirmed || r.Nothing {
				t.Errorf("report: %+v", r)
			}
			n.hang(true)
			s = NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim(), Fallback: true})
			if r := settled(t, s); r.Emptied || !r.Nothing {
				t.Errorf("report: %+v", r)
			}
		})
	})
}

// The processes of a pod in a virtual machine, or in a container that was started since
// the runtime was asked last, are in no cgroup that is known: that those are empty, or
// not there, says nothing of them.
func TestStopProcessesElsewhere(t *testing.T) {
	t.Parallel()
	for name, leaf := range map[string]func(*node){
		"an empty cgroup": func(n *node) { n.procs["/kubepods/podx/a"] = 0 },
		"no cgroup":       func(*node) {},
	} {
		for _, hung := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hung %v", name, hung), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := newNode()
					n.procs["/kubepods/podx"] = 1
					leaf(n)
					n.hang(true)
					if !hung {
						time.AfterFunc(DefaultStopTimeout+time.Second, func() { n.hang(false) }) // a virtual machine takes its time
					}
					s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a"), Direct: true, Fallback: true})
					r := settled(t, s)
					if r.Emptied == hung || r.Confirmed == hung || r.Nothing != hung || r.Killed != 0 {
						t.Errorf("report: %+v", r)
					}
					if took := time.Since(n.started); took < DefaultStopTimeout+time.Second || took > DefaultStopTimeout+settleFor+pollLast {
						t.Errorf("took %v", took)
					}
				})
			})
		}
	}
}

// The cgroups are the truth: what the runtime fails at afterwards is no failure.
func TestStopNetworkFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode("a")
		n.stopErr["sb"] = fmt.Errorf("stop sandbox: %w: cni", cri.ErrRefused)
		s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a"), Fallback: true})
		if r := settled(t, s); !r.Emptied || r.Confirmed || r.Nothing {
			t.Errorf("report: %+v", r)
		}
		<-s.Finished()
		r := s.Report()
		if r.Confirmed || len(r.Errors) != 1 {
			t.Errorf("report: %+v", r)
		}
		asked := 0
		for _, call := range n.seen() {
			if strings.HasSuffix(call, "stop sandbox") {
				asked++
			}
		}
		if asked < 5 || asked > 20 {
			t.Errorf("asked %d times in %v", asked, time.Since(n.started))
		}
	})
}

func TestStopUnreadableCgroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode("a", "b")
		n.readErr["/kubepods/podx/a"] = errBoom
		s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a", "b"), Fallback: true})
		time.Sleep(time.Second)
		n.mu.Lock()
		delete(n.readErr, "/kubepods/podx/a")
		n.mu.Unlock()
		r := settled(t, s)
		if !r.Emptied || !about(r.EmptiedAfter, time.Second) || len(r.Errors) != 1 || !errors.Is(r.Errors[0], errBoom) {
			t.Errorf("report: %+v", r)
		}
	})
}

// The end of the service ends a stop at once and leaves nothing behind.
func TestStopCancelled(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{0, time.Hour} {
		for _, hung := range []bool{true, false} {
			t.Run(fmt.Sprintf("grace %v, hung %v", grace, hung), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := newNode("a", "b")
					n.obeys["a"], n.hung = time.Minute, hung
					if !hung {
						n.stopErr["sb"], n.stopErr["b"] = cri.ErrRefused, cri.ErrRefused
					}
					ctx, cancel := context.WithCancel(t.Context())
					s := NewStops(n, n).Stop(ctx, StopRequest{Victim: victim("a", "b"), Grace: grace, Fallback: true})
					time.Sleep(time.Second)
					cancel()
					<-s.Finished()
					if took := time.Since(n.started); took > time.Second+50*time.Millisecond {
						t.Errorf("went on for %v", took-time.Second)
					}
					r := settled(t, s)
					if r.Emptied || !errors.Is(errors.Join(r.Errors...), context.Canceled) {
						t.Errorf("report: %+v", r)
					}
				})
			})
		}
	}
	t.Run("before it began: what is asked directly is still done", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a")
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			s := NewStops(n, n).Stop(ctx, StopRequest{Victim: victim("a"), Direct: true})
			<-s.Finished()
			if r := s.Report(); !r.Emptied || r.Killed != 3 {
				t.Errorf("report: %+v", r)
			}
		})
	})
	t.Run("a caller that waits no longer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a")
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a"), Grace: 10 * time.Second})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if r, err := s.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || r.Emptied {
				t.Errorf("got %+v, %v", r, err)
			}
			if r := settled(t, s); !r.Emptied {
				t.Errorf("the stop did not go on: %+v", r)
			}
		})
	})
}
