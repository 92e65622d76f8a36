package world

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/simulate"
	"github.com/criguard/criguard/policy"
)

// Only a fast leak of high priority is stopped, also when criguard is killed just before the threshold is met
// and comes back just before or after that.
func TestLeakAroundARestart(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, away := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 250 * time.Millisecond} {
			t.Run(fmt.Sprintf("v1 %t, %v away", v1, away), func(t *testing.T) {
				var w *World
				run(t, func(t *testing.T) (*World, time.Duration) {
					w = leaky(t, v1)
					w.At(22800*time.Millisecond, (*World).Kill)
					w.At(22800*time.Millisecond+away, (*World).Start)
					return w, 30 * time.Second
				})
				if len(w.kills) != 1 || w.kills[0].spec.Name != "leak" {
					t.Errorf("stopped %v, want the leak", w.kills)
				}
			})
		}
	}
}

// Only a fast leak of high priority is stopped, also when the machine sleeps just before the threshold is met: nothing
// grows meanwhile.
func TestLeakAroundASleep(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, slept := range []time.Duration{3 * time.Second, 3 * time.Hour} {
			t.Run(fmt.Sprintf("v1 %t, %v", v1, slept), func(t *testing.T) {
				var w *World
				run(t, func(t *testing.T) (*World, time.Duration) {
					w = leaky(t, v1)
					w.At(22800*time.Millisecond, func(w *World) { w.sleep(slept) })
					return w, 30 * time.Second
				})
				if len(w.kills) != 1 || w.kills[0].spec.Name != "leak" {
					t.Errorf("stopped %v, want the leak", w.kills)
				}
			})
		}
	}
}

// A pod that takes much before it is listed is stopped, and no other: the stop waits for the listing.
func TestPodThatIsNotListedYet(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		t.Run(fmt.Sprint("v1 ", v1), func(t *testing.T) {
			var w *World
			run(t, func(t *testing.T) (*World, time.Duration) {
				w = New(t, v1, gib, critest.Containerd2, `eviction.hard."memory.available" = "100Mi"`)
				w.hard, w.outside = 100*mib, 300*mib
				for i := range 5 {
					w.addPod(&pod{spec: critest.PodSpec{Name: fmt.Sprint("pod-", i)}, used: 50 * mib})
				}
				w.Start()
				w.At(20*time.Second, func(w *World) { w.runtime.Inject(critest.Fault{Method: "ListPodSandbox", Delay: time.Second}) })
				greedy := w.starts(20100*time.Millisecond, &pod{spec: critest.PodSpec{Name: "greedy"}, used: mib, rate: 3000 * mib})
				w.At(20240*time.Millisecond, func(*World) { greedy.rate = 0 })
				return w, 40 * time.Second
			})
			if len(w.kills) != 1 || w.kills[0].spec.Name != "greedy" {
				t.Errorf("stopped %v", w.kills)
			}
		})
	}
}

// A pod that is not listed yet is stopped as soon as a listing has it, however long that takes: whether the pod's cgroup has
// announced it and a listing was in progress when the threshold was met, or the stop itself has asked for one.
func TestSlowListing(t *testing.T) {
	const began, rate = 21 * time.Second, 60 * mib
	for _, c := range []struct {
		announced bool
		used      int64         // by the pod at first
		met       time.Duration // when the threshold is met, since the pod began
		takes     time.Duration // a listing
	}{
		{true, 370 * mib, 100 * time.Millisecond, 150 * time.Millisecond},
		{true, 370 * mib, 100 * time.Millisecond, 200 * time.Millisecond},
		{true, 370 * mib, 100 * time.Millisecond, 300 * time.Millisecond},
		{true, mib, 1500 * time.Millisecond, 1800 * time.Millisecond}, // the loop sleeps long when nothing fills fast
		{false, 370 * mib, 100 * time.Millisecond, 150 * time.Millisecond},
		{false, 370 * mib, 100 * time.Millisecond, 300 * time.Millisecond},
		{false, mib, 1500 * time.Millisecond, 300 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("announced %t, %d MiB, takes %v", c.announced, c.used/mib, c.takes), func(t *testing.T) {
			var w *World
			run(t, func(t *testing.T) (*World, time.Duration) {
				w = New(t, true, gib, critest.Containerd2, `eviction.hard."memory.available" = "100Mi"`)
				w.hard, w.deaf = 100*mib, !c.announced
				w.outside = gib - 100*mib - 5*50*mib - c.used - rate*c.met.Milliseconds()/1000
				for i := range 5 {
					w.addPod(&pod{spec: critest.PodSpec{Name: fmt.Sprint("pod-", i)}, used: 50 * mib})
				}
				if !c.announced {
					w.runtime.Inject(critest.Fault{Method: "GetContainerEvents", Err: critest.Code(codes.Unimplemented, "switched off")})
				}
				w.Start()
				w.At(began, func(w *World) { w.runtime.Inject(critest.Fault{Method: "ListPodSandbox", Delay: c.takes}) })
				w.starts(began, &pod{spec: critest.PodSpec{Name: "greedy"}, used: c.used, rate: rate})
				return w, 40 * time.Second
			})
			if len(w.kills) != 1 || w.kills[0].spec.Name != "greedy" {
				t.Fatalf("stopped %v", w.kills)
			}
			listed := began + c.takes
			if !c.announced {
				listed += c.met
			}
			if late := w.kills[0].stoppedAt - listed; late > 50*time.Millisecond { // the kernel may announce nothing
				t.Errorf("stopped %s after it was listed", late)
			}
		})
	}
}

// What could not be saved while the disk was broken is saved when it works again: the stop, the budget that it cost and a pause
// survive a kill of the service.
func TestBrokenDiskLosesNothing(t *testing.T) {
	run(t, func(t *testing.T) (*World, time.Duration) {
		w := leaky(t, false)
		var leak *pod
		w.At(15*time.Second, func(w *World) { w.BreakDisk(20 * time.Second) })
		w.At(30*time.Second, func(w *World) {
			w.Command(api.Command{Command: api.CommandPause, For: api.Duration(time.Hour)}, func() { w.pausedAt, w.pausedUntil = w.Now(), time.Hour })
		})
		w.At(47*time.Second, func(w *World) {
			if len(w.kills) != 1 {
				t.Fatalf("stopped %v, want the leak", w.kills)
			}
			leak = w.kills[0]
			budget, err := os.ReadFile(filepath.Join(w.service.dir, "budget.json"))
			if err != nil || !bytes.Contains(budget, []byte(`"stops":`)) {
				t.Errorf("the budget is %s, %v", budget, err)
			}
			w.Kill()
			w.Start()
		})
		w.At(50*time.Second, func(w *World) {
			if stops := w.Stops(); len(stops) != 1 || stops[0].Sandbox != leak.ID {
				t.Errorf("the history has %+v", stops)
			}
			if o, err := os.ReadFile(filepath.Join(w.service.dir, "orders.json")); err != nil || !bytes.Contains(o, []byte(`"pause":`)) {
				t.Errorf("the orders are %s, %v", o, err)
			}
		})
		return w, time.Minute
	})
}

// The history says that a condition has ended, also if a restart of the service ended it.
func TestConditionEndsOverARestart(t *testing.T) {
	run(t, func(t *testing.T) (*World, time.Duration) {
		w := leaky(t, false)
		last := func(w *World) (last api.Pass) {
			list, err := history.Read(t.Context(), w.service.dir, api.HistoryQuery{})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list.Passes {
				if p.Changed {
					last = p
				}
			}
			return last
		}
		w.At(40*time.Second, func(w *World) {
			if p := last(w); !p.Conditions.Has(policy.MemoryPressure) {
				t.Errorf("before the restart, pass %d: %s", p.ID, p.Conditions)
			}
			w.Stop()
			w.Start()
		})
		w.At(50*time.Second, func(w *World) {
			if p := last(w); p.ID == 0 || p.Conditions != 0 {
				t.Errorf("after the restart, pass %d: %s", p.ID, p.Conditions)
			}
		})
		return w, time.Minute
	})
}

// Only a fast leak of high priority is stopped, also if no wake-up announced its pod and no sample has it, as soon after a
// restart: it is young, and has grown since it was created.
func TestLeakThatNoSampleHas(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		t.Run(fmt.Sprint("v1 ", v1), func(t *testing.T) {
			var w *World
			run(t, func(t *testing.T) (*World, time.Duration) {
				w = New(t, v1, 4*gib, critest.Containerd2, `eviction.hard."memory.available" = "100Mi"`, "[[priority]]\nname = \"leak\"\nvalue = 1000")
				w.hard, w.deaf = 100*mib, true
				w.At(18*time.Second, (*World).Kill)
				w.At(19*time.Second, (*World).Start)
				for i := range 19 {
					w.addPod(&pod{spec: critest.PodSpec{Name: fmt.Sprint("pod-", i)}, used: 100 * mib})
				}
				w.Start()
				w.leak(20500*time.Millisecond, "leak", 700)
				return w, 30 * time.Second
			})
			if len(w.kills) != 1 || w.kills[0].spec.Name != "leak" {
				t.Errorf("stopped %v, want the leak", w.kills)
			}
		})
	}
}

// leaky returns a world with a service, in which a pod of high priority beside 19 others begins to leak fast after 20 s. The
// hard threshold is met 2.98 s later: (4096 - 1900 - 10 - 100 MiB) / 700 MiB/s.
func leaky(t *testing.T, v1 bool) *World {
	t.Helper()
	w := New(t, v1, 4*gib, critest.Containerd2, `eviction.hard."memory.available" = "100Mi"`, "[[priority]]\nname = \"leak\"\nvalue = 1000")
	w.hard = 100 * mib
	for i := range 19 {
		w.addPod(&pod{spec: critest.PodSpec{Name: fmt.Sprint("pod-", i)}, used: 100 * mib})
	}
	leak := w.addPod(&pod{spec: critest.PodSpec{Name: "leak"}, used: 10 * mib})
	w.Start()
	w.At(20*time.Second, func(*World) { leak.rate, leak.leaks = 700*mib, time.Now() })
	return w
}

// A kubelet starts a pod again under its UID while the runtime lists nothing. The pod leaks again, and is stopped again.
func TestLeakInAPodThatIsNotListed(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		t.Run(fmt.Sprint("v1 ", v1), func(t *testing.T) {
			var w *World
			run(t, func(t *testing.T) (*World, time.Duration) {
				w = New(t, v1, gib, critest.Containerd2, `eviction.hard."memory.available" = "100Mi"`)
				w.hard, w.outside, w.kubelet = 100*mib, 300*mib, true
				w.addPod(&pod{spec: critest.PodSpec{Name: "idle"}, used: 100 * mib})
				w.Start()
				w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "leaky"}, used: mib, rate: 400 * mib, returns: time.Second})
				w.At(21*time.Second, func(w *World) {
					w.runtime.Inject(critest.Fault{Method: "ListPodSandbox", Err: critest.Code(codes.Unavailable, "transport is closing")})
				})
				return w, 40 * time.Second
			})
			idle := func(p *pod) bool { return p.spec.Name != "leaky" }
			if len(w.kills) < 3 || slices.ContainsFunc(w.kills, idle) {
				t.Errorf("stopped %v", w.kills)
			}
		})
	}
}

// scene is a few pods to which something happens, and the pods that must be stopped then. Those that a virtual node plays, too, are
// in node_test.go.
type scene struct {
	name  string
	lines []string // of the configuration
	hard  int64    // its threshold of memory, bytes; 0 = 100 MiB
	play  func(*World)
	want  []string // the pods that are stopped, in order; nil = none
	some  bool     // want is the pods that may be stopped, in any order
}

// plenty is a budget that never holds a stop back.
const plenty = `budget = {hard = {burst = 100, every = "1s"}, per_hour = 0}`

// limited limits what the pod writer may have on the disk.
const limited = "[[limit]]\nname = \"writer\"\nephemeral_storage = \"100Mi\""

func scenes() []scene {
	leaky := []string{"leaky"}
	return []scene{
		{name: "killed-mid-kill", lines: []string{`eviction.direct_kill = "never"`}, want: leaky, play: func(w *World) {
			leaky := w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "leaky"}, used: mib, rate: 400 * mib})
			w.At(21*time.Second, func(w *World) { w.runtime.Stop() })
			w.At(21500*time.Millisecond, func(*World) { leaky.rate = 0 }) // 90 MiB are available
			w.At(22*time.Second, (*World).Kill)
			w.At(23*time.Second, (*World).Start)
			w.At(24*time.Second, func(w *World) { w.runtime.Start() })
			w.At(30*time.Second, func(w *World) {
				if leaky.runs() {
					w.violate("the stop that the crash interrupted was not continued")
				}
			})
		}},
		{name: "pause", play: func(w *World) { // the script of test/node reads the status text in systemd
			w.addPod(&pod{spec: critest.PodSpec{Name: "spared"}, used: 128 * mib})
			w.At(5*time.Second, func(w *World) {
				w.Command(api.Command{Command: api.CommandPause, For: api.Duration(time.Hour)}, func() {})
			})
			w.At(8*time.Second, func(w *World) {
				w.hard = 900 * mib
				w.Reload(false, `eviction.hard."memory.available" = "900Mi"`)
			})
			w.At(20*time.Second, (*World).Kill)
			w.At(21*time.Second, (*World).Start)
		}},
		{name: "observe", hard: 500 * mib, lines: []string{`mode = "observe"`}, play: func(w *World) {
			w.observe, w.weak = true, true
			w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "small"}, used: 100 * mib})
			large := w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "large"}, used: 200 * mib})
			w.At(40*time.Second, func(w *World) {
				w.Command(api.Command{Command: api.CommandDrain}, func() { w.violate("a drain was not refused") })
			})
			w.At(time.Minute, func(w *World) {
				st, stops := w.answers()
				if st.Mode != "observe" || len(st.InFlight) > 0 || len(stops) != 1 || !stops[0].DryRun || stops[0].Sandbox != large.ID {
					w.violate("in %s mode, it stops %q, and the history has %+v", st.Mode, st.InFlight, stops)
				}
				if n := strings.Count(w.story.String(), "would stop pod"); n != 1 {
					w.violate("the log has %d times which pod would be stopped", n)
				}
			})
		}},
		{name: "held-reload", lines: []string{plenty}, want: []string{"waits", "hurries"}, play: func(w *World) {
			reload := func(threshold int64, now bool) {
				w.hard, w.settings = threshold*mib, []string{plenty, fmt.Sprintf(`eviction.hard."memory.available" = "%dMi"`, threshold)}
				w.Command(api.Command{Command: api.CommandReload, Now: now}, func() {})
			}
			waits := w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "waits"}, used: 200 * mib})
			hurries := w.starts(70*time.Second, &pod{spec: critest.PodSpec{Name: "hurries"}, used: 180 * mib})
			w.At(25*time.Second, func(*World) { reload(500, false) })
			w.At(80*time.Second, func(*World) { reload(600, true) })
			for at, run := range map[time.Duration][]*pod{54900 * time.Millisecond: {waits, hurries}, 57 * time.Second: {hurries}, 79 * time.Second: {hurries}, 82 * time.Second: {}} {
				w.At(at, func(w *World) {
					for _, p := range []*pod{waits, hurries} {
						if p.runs() != slices.Contains(run, p) {
							w.violate("%s runs: %t", p, p.runs())
						}
					}
				})
			}
			w.At(90*time.Second, func(w *World) {
				if n := strings.Count(w.story.String(), `msg="configuration held`); n != 1 {
					w.violate("the log has %d times that a configuration is held", n)
				}
			})
		}},
		{name: "limit", lines: []string{limited}, want: []string{"writer"}, play: func(w *World) {
			w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "writer"}, used: mib, writes: 10 * mib, diskLimit: 100 * mib})
		}},
		{name: "limit-volume", lines: []string{limited}, want: []string{"writer"}, play: func(w *World) { // the kubelet keeps it
			w.kubelet = true
			p := w.addPod(&pod{spec: critest.PodSpec{Name: "writer"}, used: mib, diskLimit: 100 * mib, returns: time.Second})
			w.disk.volumes.add(p.UID, space{bytes: 120 * mib})
		}},
		{name: "limit-memory", lines: []string{limited}, want: []string{"writer"}, play: func(w *World) {
			// Memory runs short while it is being stopped, and the runtime is late with its files in memory.
			w.slowStops = 400 * time.Millisecond
			w.addPod(&pod{spec: critest.PodSpec{Name: "idle"}, used: 200 * mib})
			w.starts(20*time.Second, &pod{
				spec: critest.PodSpec{Name: "writer"}, used: 250 * mib, writes: 10 * mib, diskLimit: 100 * mib, flushes: 2000 * mib,
				shared: 1, unmounting: 300 * time.Millisecond,
			})
		}},
		{
			// A new pod fills the disk between two samples of containerd, and would need five seconds from the threshold on.
			name: "layer-new", want: []string{"writer"}, play: func(w *World) {
				w.shortDisk()
				writer := w.starts(21*time.Second, &pod{spec: critest.PodSpec{Name: "writer"}, used: mib, writes: 300 * mib})
				w.At(26*time.Second, func(w *World) {
					if writer.runs() {
						w.violate("it still writes, and %d MiB are available", w.disk.available()/mib)
					}
				})
			},
		},
		{
			// The disk runs short while a pod is being stopped for its limit. The kubelet removes its volume while the pods are
			// measured again, and that is enough.
			name: "limit-disk", lines: []string{`eviction.direct_kill = "never"`, limited}, want: []string{"writer"}, play: func(w *World) {
				w.shortDisk()
				w.slowStops, w.disk.walk, w.disk.deleted.perSecond = 9*time.Second, 3*time.Second, space{2000 * mib, 100_000}
				writer := w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "writer"}, used: mib, writes: 20 * mib, toVolume: 1, diskLimit: 100 * mib})
				w.When(func() bool { return w.orderOf(writer.UID).kind == api.KindLimit }, 21*time.Second, time.Second/2, func(w *World) {
					w.disk.other.Add(w.disk.available() - w.free.bytes + 50*mib)
				})
			},
		},
		{
			// The bytes run short before the inodes.
			name: "bytes-inodes", lines: []string{`eviction.hard."nodefs.inodesFree" = "300000"`, `eviction.hard."imagefs.inodesFree" = "300000"`}, want: []string{"writer"},
			play: func(w *World) {
				w.disk.inodes, w.free.inodes = 327_600, 300_000
				w.shortDisk()
				w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "writer"}, used: mib, writes: 200 * mib, fileSize: 32 << 10})
			},
		},
		{name: "reserve", lines: []string{plenty}, want: numbered("old", 7), play: func(w *World) { // what the first four give back refills it
			w.disk.total, w.disk.reserve, w.free.bytes = 10*gib, 3*gib, 1536*mib // 15 %
			w.disk.other.Store(0)
			for i, name := range numbered("old", 7) {
				w.disk.fill(w.addPod(&pod{spec: critest.PodSpec{Name: name}, used: mib}), int64(720-10*i)*mib)
			}
			w.At(20*time.Second, func(w *World) {
				w.disk.other.Add(w.disk.unused().bytes)
				w.full = true
			})
		}},
		{name: "lowered-tasks", lines: []string{plenty}, want: numbered("busy", 4), play: func(w *World) { // nothing is available until the last stop
			for i, name := range numbered("busy", 4) {
				w.addPod(&pod{spec: critest.PodSpec{Name: name}, used: mib, tasks: int64(40 - 5*i)})
			}
			w.At(20*time.Second, func(w *World) { w.limitTasks(pidMax, 25) })
		}},
		{name: "killed-while-deleting", want: []string{"writer"}, play: func(w *World) {
			w.shortDisk()
			w.disk.deleted.perSecond = space{5 * mib, 5000}
			writer := w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "writer"}, used: mib, writes: 200 * mib})
			w.When(func() bool { return writer.gone && w.service != nil }, 21*time.Second, time.Second/2, func(w *World) {
				w.Kill()
				w.At(w.Now()+100*time.Millisecond, (*World).Start)
			})
		}},
		{name: "emptied", play: func(w *World) { // others have written to the disk, and delete it again while an operator lets no pod be stopped
			w.shortDisk()
			w.At(15*time.Second, func(w *World) {
				w.Command(api.Command{Command: api.CommandPause, For: api.Duration(12 * time.Second)}, func() {})
			})
			w.At(20*time.Second, func(w *World) { w.disk.other.Add(w.disk.available() - w.free.bytes + 400*mib) })
			w.At(23*time.Second, func(w *World) {
				w.disk.other.Add(-gib)
				w.disk.deleted.add("others", space{bytes: gib})
			})
		}},
		{name: "dead-log", lines: []string{`eviction.hard."nodefs.available" = "1536Mi"`, limited}, want: []string{"writer"}, play: func(w *World) {
			// The log of a pod that was stopped for its limit is all that a disk without the layers lacks later.
			w.disk.apart.layers = true
			w.shortDisk()
			idle := w.addPod(&pod{spec: critest.PodSpec{Name: "idle-log"}, used: mib, toLog: 1})
			w.disk.logs.add(w.disk.logs.ofPod(idle), space{bytes: 500 * mib})
			w.leave(600 * mib)
			w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "writer"}, used: mib, toLog: 1, writes: 20 * mib, diskLimit: 100 * mib})
			w.At(time.Minute, func(w *World) { w.disk.other.Add(w.disk.available() - w.free.bytes + 50*mib) })
		}},
		{name: "old-images", lines: []string{`images = {min_age = "0s", unused_grace = "0s"}`}, play: func(w *World) {
			w.disk.total, w.free.bytes = 10*gib, 1536*mib
			for i := range 20 {
				w.pull(fmt.Sprintf("old:%d", i), 100*mib)
			}
			w.disk.other.Store(5 * gib)
			w.At(20*time.Second, func(w *World) { w.disk.other.Add(w.disk.available() - 1200*mib) })
			w.At(100*time.Second, func(w *World) {
				if w.disk.available() < w.free.bytes || len(w.images) < 10 {
					w.violate("%d images are left, %d MiB are available", len(w.images), w.disk.available()/mib)
				}
			})
		}},
		{
			name: "swapped", lines: []string{`eviction.hard."swap.available" = "358Mi"`, "[[priority]]\nname = \"leaky\"\nvalue = 1000"}, want: leaky,
			play: func(w *World) {
				w.swap, w.swapShort, w.cache = 512*mib, 358*mib, 300*mib
				for _, name := range numbered("idle", 3) {
					w.addPod(&pod{spec: critest.PodSpec{Name: name}, used: 100 * mib})
				}
				w.leak(20*time.Second, "leaky", 200)
				w.At(time.Minute, func(w *World) {
					if w.freeSwap() == w.swap {
						w.violate("no pod was pushed into swap")
					}
				})
			},
		},
		{name: "returned", lines: []string{plenty, `backoff.first = "5m"`}, want: []string{"again", "leaky"}, play: func(w *World) {
			w.plenty = true
			w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "again"}, used: 620 * mib, returns: 2 * time.Second})
			w.leak(40*time.Second, "leaky", 200)
		}},
		{name: "within-request", lines: []string{plenty}, want: leaky, play: func(w *World) {
			w.addPod(&pod{spec: critest.PodSpec{Name: "small"}, used: 4 * mib})
			w.addPod(&pod{spec: critest.PodSpec{Name: "first"}, used: 8 * mib})
			request := []critest.ContainerSpec{{OOMScoreAdj: 1000 - 700*1000/1024}} // 700 MiB of 1 GiB
			w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "leaky", QoS: "Burstable", Containers: request}, used: mib, rate: 500 * mib})
			w.At(40*time.Second, func(w *World) {
				if !strings.Contains(w.story.String(), "fills it") {
					w.violate("the reason of the stop is not that the pod fills memory")
				}
			})
		}},
		{name: "protected-hog", hard: 300 * mib, lines: []string{plenty, protectVault}, play: func(w *World) {
			w.vault(10*mib, 400)
			w.givesUp(time.Minute, api.HeldProtected)
		}},
		{name: "breaker", lines: []string{plenty, protectVault}, want: numbered("innocent", 6), some: true, play: func(w *World) {
			w.capacity = 4 * gib
			w.vault(150*mib, 40)
			w.givesUp(150*time.Second, api.HeldBreaker)
		}},
	}
}

// protectVault protects the pods of a namespace.
const protectVault = "[[protect]]\nnamespace = \"vault\""

// vault adds six pods of that size, and lets a protected one take so many MiB per second until little is left.
func (w *World) vault(size, rate int64) {
	w.plenty = true
	for _, name := range numbered("innocent", 6) {
		w.addPod(&pod{spec: critest.PodSpec{Name: name}, used: size})
	}
	keeper := w.addPod(&pod{spec: critest.PodSpec{Name: "keeper", Namespace: "vault"}, used: mib, protected: true})
	var look func(*World)
	look = func(w *World) {
		if keeper.rate = 0; w.available() > 60*mib {
			keeper.rate = rate * mib
			w.At(w.Now()+time.Duration(2000/rate)*time.Millisecond, look)
		}
	}
	w.At(20*time.Second, look)
}

// givesUp checks that the service holds its stops for memory back at a time, and has raised one alarm.
func (w *World) givesUp(at time.Duration, held string) {
	w.At(at, func(w *World) {
		st, _ := w.answers()
		if st.LastPass == nil || st.LastPass.Held != held || len(st.Alarms) != 1 || !strings.HasPrefix(st.Alarms[0], "memory: ") ||
			slices.Contains(st.Budget.Breakers, policy.PoolMemory) != (held == api.HeldBreaker) || strings.Count(w.story.String(), "event=alarm") != 1 {
			w.violate("the status does not say that the stops are held by %s: %+v", held, st)
		}
	})
}

// answers returns what the service says of itself, and the stops in its history.
func (w *World) answers() (st api.Status, stops []api.StopView) {
	w.tb.Helper()
	client := control.NewClientOver(rundir.Dir(w.service.dir), w.service.control.dial)
	st, err := client.Status(w.tb.Context())
	list, listErr := client.Passes(w.tb.Context(), api.HistoryQuery{})
	if err := errors.Join(err, listErr); err != nil {
		w.tb.Fatal(err)
	}
	for _, p := range list.Passes {
		if p.Stop != nil {
			stops = append(stops, *p.Stop)
		}
	}
	return st, stops
}

// shortDisk leaves 600 MiB until the threshold of a disk that deletes 50 MiB/s, and an idle pod has 300 MiB on it.
func (w *World) shortDisk() {
	w.disk.total, w.free.bytes = 10*gib, 1536*mib // 15 %
	w.disk.deleted.perSecond = space{50 * mib, 5000}
	w.disk.other.Store(5 * gib)
	idle := w.addPod(&pod{spec: critest.PodSpec{Name: "idle"}, used: mib, fileSize: 32 << 10})
	w.disk.fill(idle, 300*mib)
	w.leave(600 * mib)
}

// numbered returns so many names.
func numbered(name string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", name, i))
	}
	return names
}

// starts adds a pod at a time after the beginning.
func (w *World) starts(at time.Duration, p *pod) *pod {
	w.At(at, func(w *World) {
		p.leaks = time.Now()
		w.addPod(p)
	})
	return p
}

// leak starts a pod that takes so many MiB per second.
func (w *World) leak(at time.Duration, name string, rate int64) {
	w.starts(at, &pod{spec: critest.PodSpec{Name: name}, used: mib, rate: rate * mib})
}

// In each scene, the expected pods are stopped.
func TestScenes(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for i, s := range scenes() {
			if !many() && v1 != (i%2 == 1) {
				continue
			}
			t.Run(fmt.Sprintf("%s/v1 %t", s.name, v1), func(t *testing.T) {
				t.Parallel()
				var w *World
				story := run(t, func(t *testing.T) (*World, time.Duration) {
					if s.hard == 0 {
						s.hard = 100 * mib
					}
					lines := append([]string{fmt.Sprintf(`eviction.hard."memory.available" = "%dMi"`, s.hard/mib)}, s.lines...)
					w = New(t, v1, gib, critest.Containerd2, lines...)
					w.hard, w.pids, w.outside, w.plenty = s.hard, pidMax/20, 300*mib, len(s.lines) > 0 && s.lines[0] == plenty
					for _, p := range []*pod{
						{spec: critest.PodSpec{Name: "guaranteed", QoS: "Guaranteed", Containers: []critest.ContainerSpec{{MemoryLimit: 48 * mib}}}, used: 16 * mib, limit: 48 * mib},
						{spec: critest.PodSpec{Name: "burstable", QoS: "Burstable"}, used: 16 * mib},
						{spec: critest.PodSpec{Name: "besteffort"}, used: mib},
					} {
						w.addPod(p)
					}
					w.At(0, (*World).Start)
					s.play(w)
					return w, 3 * time.Minute
				})
				var stopped []string
				for _, p := range w.kills {
					stopped = append(stopped, p.spec.Name)
				}
				allowed := func(name string) bool { return slices.Contains(s.want, name) }
				if s.some && (len(stopped) == 0 || len(stopped) > 3 || slices.ContainsFunc(stopped, func(name string) bool { return !allowed(name) })) ||
					!s.some && !slices.Equal(stopped, s.want) {
					t.Errorf("stopped %q, want %q:\n%s", stopped, s.want, story)
				}
			})
		}
	}
}

// A trace of a world leads a simulation to the same victim.
func TestTrace(t *testing.T) {
	var b bytes.Buffer
	lines := []string{`eviction.hard."memory.available" = "100Mi"`}
	run(t, func(t *testing.T) (*World, time.Duration) {
		w := New(t, false, gib, critest.Containerd2, lines...)
		w.hard, w.outside = 100*mib, 300*mib
		w.WriteTrace(&b)
		w.addPod(&pod{spec: critest.PodSpec{Name: "idle"}, used: 100 * mib})
		w.At(0, (*World).Start)
		w.starts(20*time.Second, &pod{spec: critest.PodSpec{Name: "leaky", QoS: "BestEffort"}, used: mib, rate: 200 * mib})
		return w, time.Minute
	})
	sum, err := simulate.Run(t.Context(), configtest.Parse(t, lines[0]), &b, io.Discard, simulate.Options{})
	if err != nil || len(sum.Stops) != 1 || !strings.Contains(fmt.Sprint(sum.Stops[0]), "default/leaky") {
		t.Errorf("the simulation stops %+v, error %v", sum.Stops, err)
	}
}
