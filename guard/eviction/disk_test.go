package eviction

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// stopsAfterReclaim ends the last reclaim. The next pass must stop a pod.
func stopsAfterReclaim(t *testing.T, g *Manager, n *fakeNode, d time.Duration) {
	t.Helper()
	close(n.reliefs[len(n.reliefs)-1].done)
	if p := n.at(g, d); p.Stop == nil {
		t.Errorf("not stopped, held by %q", p.Held)
	}
}

// If a reclaim has relieved a disk, no pod is stopped for it.
func TestPassReclaimSpares(t *testing.T) {
	g, n := newDiskManager(t)
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.at(g, 0)
	n.set(policy.NodeFSAvailable, 2*testGiB)
	close(n.reliefs[0].done)
	if p := n.at(g, time.Second); p.Stop != nil || p.Held != "" {
		t.Errorf("after the reclaim: %+v, held by %q", p.Stop, p.Held)
	}
}

// A reclaim that relieved its signal serves no later stop: other pods may use up the space, so the usage of
// each pod must be measured again.
func TestPassReclaimsAfresh(t *testing.T) {
	g, n := newDiskManager(t)
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.at(g, 0)
	n.set(policy.NodeFSAvailable, 2*testGiB)
	close(n.reliefs[0].done)
	n.at(g, time.Second)
	n.set(policy.NodeFSAvailable, testGiB/2)
	if p := n.at(g, 2*time.Second); p.Stop != nil || len(n.reliefs) != 2 {
		t.Fatalf("full again: stop %+v after %d reclaims, want none before a second one", p.Stop, len(n.reliefs))
	}
	stopsAfterReclaim(t, g, n, 3*time.Second)
}

// Measurements from before a disk was full again do not show which pod has filled it since.
func TestPassMeasuresAfresh(t *testing.T) {
	g, n := newDiskManager(t)
	for i, room := range []int64{testGiB / 2, 2 * testGiB, testGiB / 2} {
		n.set(policy.NodeFSAvailable, room)
		n.at(g, time.Duration(i)*time.Second)
	}
	close(n.reliefs[0].done)
	if p := n.at(g, 3*time.Second); p.Stop != nil {
		t.Errorf("stopped %s by what was measured before", p.Stop.Pod)
	}
	if p := n.at(g, 4*time.Second); p.Stop != nil || len(n.reliefs) != 2 {
		t.Fatalf("stopped %+v after %d reclaims", p.Stop, len(n.reliefs))
	}
	stopsAfterReclaim(t, g, n, 5*time.Second)
}

// A pod that started after the others were measured may be the one that fills the disk, so no other pod is
// stopped before it is measured too. If another pod starts each time, one pod has to be stopped in the end.
func TestPassUnmeasured(t *testing.T) {
	for _, c := range []struct {
		name     string
		measured int // the reclaim that measures the pod
		stop     int // the reclaim after which a pod is stopped
	}{{"once", 2, 2}, {"never", math.MaxInt, 1 + remeasureAtMost}} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newDiskManager(t)
			n.unasked = true
			n.set(policy.NodeFSAvailable, testGiB/2)
			n.at(g, 0)
			for i := 1; ; i++ {
				n.unasked = i < c.measured
				close(n.reliefs[i-1].done)
				p := n.at(g, time.Duration(i)*time.Second)
				if i == c.stop {
					if p.Stop == nil {
						t.Errorf("not stopped, held by %q", p.Held)
					}
					return
				}
				if p.Stop != nil || p.Held != api.HeldReclaiming || len(n.reliefs) != i+1 {
					t.Fatalf("after %d reclaims: stopped %+v, held by %q, %d reclaims begun", i, p.Stop, p.Held, len(n.reliefs))
				}
			}
		})
	}
}

// A stop frees what the pod wrote to the pressed disk at once, by removing its dead containers and their
// logs, unless the configuration forbids their removal.
func TestPassDiscards(t *testing.T) {
	for _, c := range []struct {
		name, config string
		signal       policy.Signal
		layout       policy.Layout
		want, logs   bool
	}{
		{"disk", "", policy.NodeFSAvailable, policy.SingleFS, true, true},
		{"logs are elsewhere", "", policy.NodeFSAvailable, policy.SingleFS, true, false},
		{"the disk of the logs", "", policy.NodeFSAvailable, policy.DedicatedImageFS, false, true},
		{"the disk of the layers", "", policy.ImageFSAvailable, policy.DedicatedImageFS, true, false},
		{"the disk of the layers and the logs", "", policy.ImageFSAvailable, policy.DedicatedImageFS, true, true},
		{"memory", "", policy.MemoryAvailable, policy.SingleFS, false, false},
		{"other containers are kept", "[containers]\ngc = false\n", policy.NodeFSAvailable, policy.SingleFS, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newManager(t, c.config+"[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"nodefs.available\" = \"1Gi\"\n\"imagefs.available\" = \"1Gi\"\n")
			n.layout = c.layout
			for i := range n.pods {
				n.pods[i].Disk.Logs, n.pods[i].Disk.LogsApart = policy.Exactly(testGiB), c.name == "logs are elsewhere"
				if c.name == "the disk of the layers and the logs" { // the pods have written nothing else
					n.pods[i].Disk.Rootfs, n.pods[i].Disk.LogsPlace = policy.Exactly(0), policy.LogsPlace{LogsApart: true, LogsWith: policy.ContainerFSAvailable}
				}
			}
			n.set(c.signal, testGiB/2)
			n.at(g, 0)
			if len(n.stops) != 1 || n.stops[0].order.Discard != c.want || n.stops[0].order.DiscardLogs != c.logs {
				t.Errorf("%d stops, want one that discards containers: %v, logs: %v", len(n.stops), c.want, c.logs)
			}
		})
	}
}

// What root has taken of a full filesystem's reserve comes back before anything is available. It counts as what a stop gives
// back: otherwise the breaker would open, and the next pod would be stopped while files are still being deleted.
func TestStopsRefillTheReserve(t *testing.T) {
	const reserve = 3*testGiB + testGiB/2
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n[budget]\nhard = {burst = 9, every = \"1s\"}\n")
	n.pods = nil
	for i := range 5 {
		n.pods = append(n.pods, testPod(fmt.Sprint("pod-", i), testGiB))
	}
	n.set(policy.NodeFSAvailable, 0)
	free, left := int64(0), int64(0) // left of a pod's files
	for at := time.Duration(0); at < 10*time.Minute; at += time.Second {
		back := min(left, testGiB/40) // a slow disk deletes a pod's files in 40 s
		free, left = free+back, left-back
		n.set(policy.NodeFSAvailable, max(free-reserve, 0))
		n.obs[policy.NodeFSAvailable].Reserved = min(free, reserve)
		p := n.at(g, at)
		if p.Stop == nil {
			continue
		}
		if left > 0 {
			t.Fatalf("after %s: stopped %s while files are being deleted", at, p.Stop.Pod)
		}
		left = testGiB
		n.end(n.stops[len(n.stops)-1])
	}
	if len(n.stops) != 5 || len(g.restraint.Status(n.now).Breakers) > 0 {
		t.Errorf("%d stops, want 5; open breakers: %v", len(n.stops), g.restraint.Status(n.now).Breakers)
	}
}

// A reclaim that a slow disk ended serves no stop, because something reclaimable may be left. If the disk
// is always slow and nothing is removed, one pod has to be stopped.
func TestPassLateReclaims(t *testing.T) {
	for name, away := range map[string]bool{"of the disk": false, "of a listing that the runtime does not answer": true} {
		t.Run(name, func(t *testing.T) { testPassLateReclaims(t, away) })
	}
}

func testPassLateReclaims(t *testing.T, away bool) {
	g, n := newDiskManager(t)
	n.late, n.away = true, away
	for i := range remeasureAtMost + 1 {
		n.listedAt = time.Hour + time.Duration(2*i)*time.Second
		n.set(policy.NodeFSAvailable, 0)
		p := n.at(g, time.Duration(2*i)*time.Second)
		if p.Stop != nil || p.Held != api.HeldReclaiming {
			t.Fatalf("%d: stopped %+v, held by %q", i, p.Stop, p.Held)
		}
		close(n.reliefs[i].done)
		p = n.at(g, time.Duration(2*i+1)*time.Second)
		if last := i == remeasureAtMost; (p.Stop != nil) != last {
			t.Fatalf("after %d late reclaims: stopped %+v, held by %q", i+1, p.Stop, p.Held)
		}
	}
}

// A late reclaim that made progress is repeated as often as it does. One that only would have, or of which a step never
// begins, is not.
func TestPassLateReclaimsThatRemove(t *testing.T) {
	one, failed := []reclaim.Item{{}}, []reclaim.Failure{{Message: "list images: late"}}
	for name, c := range map[string]struct {
		reports []reclaim.Report
		stops   bool
	}{
		"some images each time":        {[]reclaim.Report{{Step: reclaim.StepImages, Removed: one, Errors: failed}}, false},
		"in a dry run":                 {[]reclaim.Report{{Step: reclaim.StepImages, Removed: one, Errors: failed, DryRun: true}}, true},
		"containers, but never images": {[]reclaim.Report{{Step: reclaim.StepContainers, Removed: one}, {Step: reclaim.StepImages, Errors: failed}}, true},
	} {
		g, n := newDiskManager(t)
		n.late, n.reports = true, c.reports
		stopped := false
		for i := range 2 * remeasureAtMost {
			n.set(policy.NodeFSAvailable, 0)
			n.at(g, time.Duration(2*i)*time.Second)
			close(n.reliefs[i].done)
			if p := n.at(g, time.Duration(2*i+1)*time.Second); p.Stop != nil {
				stopped = true
				if i != remeasureAtMost {
					t.Errorf("%s: stopped after %d reclaims", name, i+1)
				}
				break
			}
		}
		if stopped != c.stops {
			t.Errorf("%s: stopped %t", name, stopped)
		}
	}
}

// No pod is stopped based on a reclaim that was cut short or has not measured the pods.
func TestPassInconclusiveReclaim(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	n.cut = true
	for i := range 3 {
		if p := n.at(g, time.Duration(i)*time.Second); p.Stop != nil || p.Held != api.HeldReclaiming || len(n.reliefs) != i+1 {
			t.Fatalf("%+v, held by %q, %d reclaims", p.Stop, p.Held, len(n.reliefs))
		}
	}
	n.cut = false
	wantStop(t, n.at(g, 0), "d/big")
}

// A reading of a slow disk from before a reclaim ended does not show that the reclaim did not help.
func TestPassWaitsForASlowDisk(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	n.diskLag = time.Second
	if p := n.at(g, 0); p.Stop != nil || p.Held != api.HeldReclaiming {
		t.Errorf("%+v, held by %q", p.Stop, p.Held)
	}
	n.diskLag = 0
	wantStop(t, n.at(g, 0), "d/big")
}

// While the runtime is down, it is unknown which pod fills a disk, and a stopped pod's files would not be
// deleted. So no pod is stopped, even if its writable layer could be walked.
func TestPassDiskWithoutARuntime(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	n.down, n.away, n.slow = true, true, true
	n.at(g, 0)
	close(n.reliefs[0].done)
	if p := n.at(g, time.Second); p.Stop != nil || p.Held != api.HeldUnlisted {
		t.Errorf("known exactly: %+v, held by %q", p.Stop, p.Held)
	}
	n.down, n.away, n.listedAt = false, false, time.Hour+2*time.Second
	if p := n.at(g, 2*time.Second); p.Stop != nil || p.Held != api.HeldReclaiming || len(n.reliefs) != 2 {
		t.Errorf("when it is back: %+v, held by %q, after %d reclaims", p.Stop, p.Held, len(n.reliefs))
	}
	close(n.reliefs[1].done)
	wantStop(t, n.at(g, 3*time.Second), "d/big")
	g, n = newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n")
	for i := range n.pods {
		n.pods[i].Disk, n.pods[i].Inodes = policy.DiskUsage{}, policy.DiskUsage{}
	}
	n.set(policy.NodeFSAvailable, 0)
	n.down = true
	if p := n.at(g, 0); p.Stop != nil || p.Held != api.HeldUnlisted {
		t.Errorf("%+v, held by %q", p.Stop, p.Held)
	}
	n.down = false
	for i := range remeasureAtMost {
		if p := n.at(g, time.Duration(i+1)*time.Second); p.Stop != nil || p.Held != api.HeldReclaiming {
			t.Errorf("measured %d times: %+v, held by %q", i+1, p.Stop, p.Held)
		}
	}
	if p := n.at(g, 5*time.Second); p.Stop != nil || p.Held != api.HeldUnknown {
		t.Errorf("a runtime that reports no usage of any pod: %+v, held by %q", p.Stop, p.Held)
	}
}

// A reclaim that failed without a runtime is repeated when the runtime has listed the pods again, and not before. If only the reclaim's
// own listing was late, it is repeated as any other.
func TestPassRepeatsAReclaimWithoutARuntime(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n")
	n.protect("a rule")
	n.set(policy.NodeFSAvailable, 0)
	n.away, n.listedAt = true, time.Hour-time.Second
	for i, step := range []struct {
		at, listed time.Duration
		away       bool
		reclaims   int
	}{{0, -1, true, 1}, {5, -1, true, 1}, {500, 400, false, 2}, {505, 400, false, 2}, {900, 800, false, 2}} {
		n.away, n.listedAt = step.away, time.Hour+step.listed*time.Millisecond
		if n.at(g, step.at*time.Millisecond); len(n.reliefs) != step.reclaims {
			t.Errorf("%d: %d reclaims, want %d", i, len(n.reliefs), step.reclaims)
		}
	}
	n.away = true
	for at := 20 * time.Second; at < 30*time.Second; at += time.Second { // after an interval
		n.listedAt = time.Hour + at
		n.at(g, at)
	}
	if want := 2 + 1 + remeasureAtMost; len(n.reliefs) != want {
		t.Errorf("with listings of its own that fail, %d reclaims, want %d", len(n.reliefs), want)
	}
}

// A runtime that comes back while a reclaim without it measures the pods, or lists them beyond its end, did not take part in it.
func TestPassWhileARuntimeComesBack(t *testing.T) {
	for name, within := range map[string]bool{"within the reclaim": true, "beyond its end": false} {
		g, n := newDiskManager(t)
		n.away, n.down = true, true
		n.set(policy.NodeFSAvailable, 0)
		n.at(g, 0)
		close(n.reliefs[0].done)
		if !within {
			n.at(g, time.Second)
		}
		n.away, n.down, n.listedAt = false, false, time.Hour+500*time.Millisecond
		for at := time.Second; at < 3*time.Second; at += 500 * time.Millisecond {
			if p := n.at(g, at); p.Stop != nil {
				t.Errorf("%s: stopped %+v after %d reclaims", name, p.Stop, len(n.reliefs))
			}
		}
		if len(n.reliefs) != 2 {
			t.Errorf("%s: %d reclaims, want 2", name, len(n.reliefs))
		}
	}
}

// Nor does it serve a stop if the runtime is back only within a pass, as when another pool lists the pods again.
func TestPassInWhichARuntimeComesBack(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"4Gi\"\n")
	n.down, n.away = true, true
	n.set(policy.NodeFSAvailable, 0)
	n.at(g, 0)
	n.set(policy.MemoryAvailable, testGiB/2)
	n.hidden = append(n.hidden, testPod("hidden", 6*testGiB))
	n.onListing = func() {
		n.down, n.away = false, false
		n.set(policy.MemoryAvailable, 8*testGiB)
	}
	if p := n.at(g, time.Second); p.Stop != nil || len(n.reliefs) != 2 {
		t.Errorf("stopped %+v, held by %q, after %d reclaims", p.Stop, p.Held, len(n.reliefs))
	}
}

// A reclaim serves one interval. While it is repeated, no pod is stopped based on the previous reclaim.
func TestPassWaitsForTheRepeatedReclaim(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"4Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	protect := func(by string) {
		for i := range n.pods {
			n.pods[i].Protection = by
		}
	}
	protect("a rule")
	if p := n.at(g, 0); p.Stop != nil || p.Held != api.HeldProtected {
		t.Fatalf("%+v, held by %q", p.Stop, p.Held)
	}
	n.slow = true
	if p := n.at(g, time.Minute); p.Stop != nil || p.Held != api.HeldReclaiming {
		t.Fatalf("%+v, held by %q", p.Stop, p.Held)
	}
	protect("")
	if p := n.at(g, time.Minute+time.Second); p.Stop != nil || p.Held != api.HeldReclaiming {
		t.Errorf("while it goes on: %+v, held by %q", p.Stop, p.Held)
	}
	close(n.reliefs[len(n.reliefs)-1].done)
	if p := n.at(g, time.Minute+2*time.Second); p.Stop == nil {
		t.Errorf("after it: held by %q", p.Held)
	}
}

// Before a pod is stopped for a disk, the other pods that were not measured in full are measured again, a
// bounded number of times. The victim itself may be measured only in part.
func TestPassMeasuresPartialPodsAgain(t *testing.T) {
	partial := func(n int64) policy.DiskUsage {
		u := diskBytes(0)
		u.Volumes = policy.AtLeast(n)
		return u
	}
	for _, c := range []struct {
		name     string
		usage    map[string]policy.DiskUsage // by pod
		becomes  policy.DiskUsage            // usage of small once it is measured again
		victim   string
		measured int // number of measurements in all
	}{
		{"the largest in part", map[string]policy.DiskUsage{"big": partial(8 * testGiB)}, partial(1), "d/big", 1},
		{"another in part, and it is larger", map[string]policy.DiskUsage{"small": partial(1)}, diskBytes(16 * testGiB), "d/small", 2},
		{"another in part, and it is smaller", map[string]policy.DiskUsage{"small": partial(testGiB)}, diskBytes(2 * testGiB), "d/big", 2},
		{"another unknown, then at least more", map[string]policy.DiskUsage{"small": {}}, partial(16 * testGiB), "d/small", 2},
		{"another in part for good", map[string]policy.DiskUsage{"small": partial(1)}, partial(2), "d/big", 1 + remeasureAtMost},
		{"another unknown for good", map[string]policy.DiskUsage{"small": {}}, policy.DiskUsage{}, "d/big", 1 + remeasureAtMost},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newDiskManager(t)
			small := -1
			for i := range n.pods {
				if u, ok := c.usage[n.pods[i].Name]; ok {
					n.pods[i].Disk = u
				}
				if n.pods[i].Name == "small" {
					small = i
				}
			}
			n.set(policy.NodeFSAvailable, 0)
			var p api.Pass
			for at := time.Duration(0); at < 20*time.Second && p.Stop == nil; at += time.Second {
				if p = n.at(g, at); p.Stop == nil && p.Held != api.HeldReclaiming {
					t.Fatalf("after %s: held by %q", at, p.Held)
				}
				for i, r := range n.reliefs {
					select {
					case <-r.done:
					default:
						if close(r.done); i > 0 {
							n.pods[small].Disk = c.becomes
						}
					}
				}
			}
			if p.Stop == nil || p.Stop.Pod != c.victim || len(n.reliefs) != c.measured {
				t.Errorf("stopped %+v after %d measurements, want %s after %d", p.Stop, len(n.reliefs), c.victim, c.measured)
			}
		})
	}
}

// A ranking shows which usage is a lower bound.
func TestRankedViewFormatsUsage(t *testing.T) {
	for want, r := range map[string]policy.Ranked{
		"unknown": {}, "64Mi": {Usage: 64 << 20, Quality: policy.QualityExact}, "≥ 64Mi": {Usage: 64 << 20, Quality: policy.QualityAtLeast},
	} {
		if v := RankedViews(&policy.Decision{Ranked: []policy.Ranked{r}}, nil)[0]; v.FormatUsage(policy.NodeFSAvailable) != want {
			t.Errorf("%q, want %q", v.FormatUsage(policy.NodeFSAvailable), want)
		}
	}
}

// Pods are measured again up to three times, also when relief looks unattainable because a usage is unknown
// or a lower bound.
func TestDiskIsMeasuredAgainWhenReliefLooksUnattainable(t *testing.T) {
	for name, usage := range map[string]policy.DiskUsage{
		"unknown": {}, "at least": {Rootfs: policy.AtLeast(testMiB), Logs: policy.Exactly(0), Volumes: policy.Exactly(0)},
	} {
		for measured := range remeasureAtMost + 2 { // the measurement that finds the usage; the last is never made
			g, n := newDiskManager(t)
			n.slow = false
			for i := range n.pods {
				n.pods[i].Disk = usage
			}
			n.set(policy.NodeFSAvailable, 0)
			for i := range measured + 1 {
				if p := n.at(g, time.Duration(i)*time.Second); i <= remeasureAtMost-1 {
					wantHeld(t, p, api.HeldReclaiming)
				} else if p.Stop != nil || p.Held == api.HeldReclaiming {
					t.Fatalf("%s, after %d measurements: stopped %+v, held by %q", name, i+1, p.Stop, p.Held)
				}
			}
			for i := range n.pods {
				n.pods[i].Disk = diskBytes(4 * testGiB)
			}
			if p := n.at(g, time.Duration(measured+1)*time.Second); p.Stop == nil {
				t.Errorf("%s, found by measurement %d: held by %q", name, measured+1, p.Held)
			}
		}
	}
}

// A stop that fails may have ended one of the pod's containers. While the files of that are deleted, no other pod is stopped.
func TestFailedStopOnADisk(t *testing.T) {
	for name, c := range map[string]struct {
		rises  int64 // per second
		within time.Duration
	}{
		"the disk rises": {50 * testMiB, 6*time.Second + failedStill},
		"it does not":    {testMiB, time.Second + failedStill},
	} {
		t.Run(name, func(t *testing.T) {
			g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n")
			n.set(policy.NodeFSAvailable, testGiB/2)
			wantStop(t, n.at(g, 0), "d/big")
			n.stops[0].outcome.Result.Errors = []string{"1 of 2 containers have not ended"}
			close(n.stops[0].done)
			for at := time.Second; at < c.within; at += failedStill / 2 {
				if at < 7*time.Second {
					n.set(policy.NodeFSAvailable, testGiB/2+c.rises*int64(at/time.Second))
				}
				wantHeld(t, n.at(g, at), api.HeldInFlight)
			}
			wantSettled(t, n.at(g, c.within), 1)
		})
	}
}
