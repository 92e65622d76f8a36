package reclaim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cri"
)

// If the cgroup is unknown, the stop relies on the runtime's report.
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

// Whatever the runtime reports as a container's cgroup, a stop never kills a pod's own cgroup, or one
// that does not belong to a single container.
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
		"in the pod, without its ID":   {"/kubepods/podx", []string{"/kubepods/podx/main"}},
		"in the pod, another's":        {"/kubepods/podx", []string{"/kubepods/podx/1", "/kubepods/podx/cri-containerd-10.scope"}},
		"in the pod, its monitor's":    {"/kubepods/podx", []string{"/kubepods/podx/crio-conmon-0.scope"}},
		"its monitor's":                {"", []string{"/kubepods/podx/crio-conmon-0"}},
		"in the pod, below another's":  {"/kubepods/podx", []string{"/kubepods/podx/sandbox/0"}},
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
				s.Escalate(true, nil)
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

// Within the pod's cgroup, a stop kills the cgroup that is named after the container, including crun's
// level below it, and then the sandbox's, which is named likewise and need not exist.
func TestStopKillsContainersOfThePod(t *testing.T) {
	t.Parallel()
	const id = "3b1e0a5c7f2d"
	for _, leaf := range []string{id, "crio-" + id, "crio-" + id + ".scope", "cri-containerd-" + id + ".scope", "docker-" + id + ".scope", id + "/container", "crio-" + id + ".scope/container"} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.hang(true)
			own := strings.TrimSuffix("/kubepods/podx/"+strings.Replace(leaf, id, "sb", 1), "/container")
			n.procs["/kubepods/podx/"+leaf], n.procs[own] = 3, 1
			v := Victim{SandboxID: "sb", Pod: "default/x", Cgroup: "/kubepods/podx",
				Containers: []VictimContainer{{ID: id, Name: "c", Cgroup: "/kubepods/podx/" + leaf}}}
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: v, Direct: true})
			if r := settled(t, s); !r.Emptied || r.Method != ByDirect || r.Killed != 3 || len(r.Errors) != 0 {
				t.Errorf("%s: %+v", leaf, r)
			}
			if n.procs[own] != 0 {
				t.Errorf("%s lives", own)
			}
		})
	}
}

// A stop kills the pod's containers that the runtime does not list, and asks the runtime only for those that it does. It
// kills no monitor, and nothing that is not directly in the pod's cgroup.
func TestStopKillsUnlistedContainers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		kept := []string{"/kubepods/podx/crio-conmon-new.scope", "/kubepods/podx", "/kubepods/podxy/new", "/kubepods/podx/a/b"}
		for _, rel := range append([]string{"/kubepods/podx/new"}, kept...) {
			n.procs[rel] = 2
		}
		v := Victim{
			SandboxID: "sb", Pod: "default/x", Cgroup: "/kubepods/podx", Unlisted: append([]string{"/kubepods/podx/new", "/kubepods/podx/../podxy/new"}, kept...),
			Containers: []VictimContainer{{ID: "old", Name: "c", Cgroup: "/kubepods/podx/old"}},
		}
		s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: v, Direct: true})
		if r := settled(t, s); !r.Emptied || r.Nothing || r.Method != ByDirect || r.Killed != 2 {
			t.Errorf("%+v", r)
		}
		<-s.Finished()
		for _, rel := range kept {
			if n.procs[rel] != 2 {
				t.Errorf("%s was killed", rel)
			}
		}
		for _, call := range n.seen() {
			if strings.Contains(call, "stop ") && !strings.Contains(call, "stop old ") && !strings.Contains(call, "stop sandbox") {
				t.Error(call)
			}
		}
	})
}

// The sandbox's own process is left to the runtime if the pod has memory in files, or may have, so that the runtime
// unmounts them.
func TestStopLeavesSharedMemoryToTheRuntime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shared int64
		err    error
		kills  bool
	}{
		"none":        {0, nil, true},
		"a page more": {sharedAtMost + 4096, nil, false},
		"little":      {sharedAtMost, nil, true},
		"unknown":     {0, errors.New("memory.stat has no shmem"), false},
		"cgroup gone": {0, fs.ErrNotExist, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.procs["/kubepods/podx/a"], n.procs["/kubepods/podx/sb"] = 1, 1
			n.shared = map[string]int64{"/kubepods/podx": c.shared}
			n.readErr["/kubepods/podx"] = c.err
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a"), Direct: true})
			<-s.Finished()
			if calls := n.seen(); slices.Contains(calls, "0s kill /kubepods/podx/sb") != c.kills || !slices.Contains(calls, "0s kill /kubepods/podx/a") {
				t.Errorf("%s: calls: %q", name, calls)
			}
			if got := s.Report().Shared; got != (c.shared > sharedAtMost) {
				t.Errorf("%s: shared memory: %t", name, got)
			}
		})
	}
}

// As soon as the containers have ended, the sandbox's own process is killed, so that no kubelet finds a sandbox in which it
// may restart them. The runtime takes longer to say that they have ended, and to stop the sandbox. With direct_kill = "never",
// and for memory in files, the sandbox waits for it.
func TestStopEndsTheSandboxWithItsContainers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fallback bool
		shared   int64
		kills    bool
	}{
		"at once":         {true, 0, true},
		"never":           {false, 0, false},
		"memory in files": {true, sharedAtMost + 4096, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			n.procs["/kubepods/podx/sb"] = 1
			n.shared = map[string]int64{"/kubepods/podx": c.shared}
			n.hang(true)
			for id, after := range map[string]time.Duration{"a": time.Second, "b": 2 * time.Second} {
				time.AfterFunc(after, func() {
					n.mu.Lock()
					defer n.mu.Unlock()
					n.procs["/kubepods/podx/"+id] = 0
				})
			}
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a", "b"), Grace: 30 * time.Second, Fallback: c.fallback})
			if r := settled(t, s); !about(r.EmptiedAfter, 2*time.Second) || r.Method != ByRuntime || r.Killed != 0 {
				t.Errorf("%s: %+v", name, r)
			}
			if calls := n.seen(); slices.ContainsFunc(calls, func(c string) bool { return strings.HasSuffix(c, "kill /kubepods/podx/sb") }) != c.kills {
				t.Errorf("%s: calls: %q", name, calls)
			}
		})
	}
}

// The sandbox's own process may be a virtual machine's: if no container had a process, the runtime alone stops it.
func TestStopLeavesTheSandboxToTheRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.procs["/kubepods/podx/a"], n.procs["/kubepods/podx/sb"] = 0, 1
		s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a"), Direct: true})
		<-s.Finished()
		if calls := n.seen(); slices.Contains(calls, "0s kill /kubepods/podx/sb") {
			t.Errorf("calls: %q", calls)
		}
	})
}

// The sandbox's ID from the runtime is not a path.
func TestStopKillsNothingElsewhere(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"../../system.slice/sshd.service", "..", ".", "", "a/b"} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a")
			n.procs["/kubepods/podx"], n.procs["/kubepods"], n.procs["/system.slice/sshd.service"] = 1, 1, 1
			v := victim("a")
			v.SandboxID = id
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: v, Direct: true})
			<-s.Finished()
			for _, call := range n.seen() {
				if strings.Contains(call, "kill ") && !strings.HasSuffix(call, "kill /kubepods/podx/a") {
					t.Errorf("sandbox %q: %s", id, call)
				}
			}
		})
	}
}

// If a pod's own cgroup is unknown, a stop kills the cgroup that is named after the container, with
// either cgroup driver.
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
	t.Run("every call finds that the runtime is away", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNode("a", "b")
			for id, why := range map[string]string{"a": "EOF", "b": "closed", "sb": "connection refused"} {
				n.stopErr[id] = fmt.Errorf("stop %s: %w: %s", id, cri.ErrUnavailable, why)
			}
			s := NewStops(n, n).Stop(t.Context(), StopRequest{Victim: victim("a", "b"), Fallback: true})
			if r := settled(t, s); !r.Emptied || len(r.Errors) != 1 || !errors.Is(r.Errors[0], cri.ErrUnavailable) {
				t.Errorf("report: %+v", r)
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

// The processes of a pod in a virtual machine, or in a container that was started since the last
// listing, are in no known cgroup. Empty or missing container cgroups prove nothing about them.
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

// Only the cgroups count: a later failure of the runtime is not a failure of the stop.
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

// The end of the service ends a stop at once, and no goroutine is left.
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
}
