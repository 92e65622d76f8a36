package eviction

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// Admission stops a pod that starts during pressure, and a limit stops a pod that exceeds it.
func TestPassEnforces(t *testing.T) {
	t.Run("admission", func(t *testing.T) {
		g, n := newManager(t, "[admission]\nmode = \"stop\"\n[budget]\nbreaker = 0\n"+softAndHard)
		n.set(policy.MemoryAvailable, testGiB+1)
		n.at(g, 0)
		n.set(policy.MemoryAvailable, 8*testGiB) // the condition outlives its threshold
		late := testPod("late", 1)
		late.Created = time.Hour + time.Second
		n.pods = append(n.pods, late)
		p := n.at(g, 2*time.Second)
		if p.Stop == nil || p.Stop.Pod != "d/late" || p.Stop.Kind != api.KindAdmission {
			t.Errorf("stopped %+v, want d/late", p.Stop)
		}
	})
	t.Run("admission, of an age that is not known", func(t *testing.T) {
		g, n := newManager(t, "[admission]\nmode = \"stop\"\n"+softAndHard)
		n.set(policy.MemoryAvailable, testGiB+1)
		n.at(g, 0)
		old := testPod("old", 1)
		old.Created = 0 // as the lister sets it for an unknown age
		n.pods = append(n.pods, old)
		if p := n.at(g, 2*time.Second); p.Stop != nil || p.Held != api.HeldGrace {
			t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
		}
		g.restraint.Begin(policy.Stop{Workload: old.Workload, Sandbox: "before", Pool: policy.PoolMemory}, time.Hour)
		if came, _ := g.restraint.CameBack(policy.PoolMemory, old.Workload, old.Created, 0, n.now); came {
			t.Error("it is taken for one that was stopped and has come back")
		}
	})
	t.Run("limit", func(t *testing.T) {
		g, n := newManager(t, "[[limit]]\nname = \"*\"\nephemeral_storage = \"2Gi\"\n"+softAndHard)
		for i := range n.pods {
			n.pods[i].StorageLimit = 2 * testGiB
			d := &n.pods[i].Disk // a limit counts logs on any device
			d.Rootfs, d.Logs, d.LogsApart = policy.Exactly(0), d.Rootfs, true
		}
		if p := n.at(g, 0); p.Stop == nil || p.Stop.Pod != "d/big" || p.Stop.Kind != api.KindLimit {
			t.Errorf("stopped %+v, want d/big", p.Stop)
		}
	})
}

// A runtime lists the pods in any order. Which one is stopped first for its limit, or because it started during a condition,
// does not depend on that.
func TestEnforcementHasATotalOrder(t *testing.T) {
	const soft = "[budget]\nsoft = {burst = 10, every = '1s'}\n"
	pod := func(name string, priority int64, used, limit int64, created time.Duration, qos policy.QoS) inventory.Pod {
		p := testPod(name, 1)
		p.Priority, p.Disk, p.StorageLimit, p.Created, p.QoS = priority, diskBytes(used), limit, created, qos
		return p
	}
	for name, c := range map[string]struct {
		conf string
		pods []inventory.Pod // in the order of their stops
	}{
		"limits: priority, excess, age, ID": {soft, []inventory.Pod{
			pod("low", -1, 3*testGiB, 2*testGiB, time.Minute, policy.Burstable),
			pod("far", 0, 6*testGiB, testGiB, time.Minute, policy.Burstable),
			pod("young", 0, 8*testGiB, 4*testGiB, 2*time.Minute, policy.Burstable),
			pod("a", 0, 8*testGiB, 4*testGiB, time.Minute, policy.BestEffort),
			pod("b", 0, 8*testGiB, 4*testGiB, time.Minute, policy.BestEffort),
		}},
		"admission: as a drain": {"admission.mode = 'stop'\n[eviction.hard]\n'pid.available' = '100'\n" + soft, []inventory.Pod{
			pod("low", -1, 0, 0, time.Hour+time.Second, policy.Burstable),
			pod("best-effort", 0, 0, 0, time.Hour+time.Second, policy.BestEffort),
			pod("young", 0, 0, 0, time.Hour+2*time.Second, policy.Burstable),
			pod("a", 0, 0, 0, time.Hour+time.Second, policy.Burstable),
			pod("b", 0, 0, 0, time.Hour+time.Second, policy.Burstable),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for i := range c.pods {
				want = append(want, c.pods[i].FullName())
			}
			for turn := range 2 * len(c.pods) {
				g, n := newManager(t, c.conf)
				n.pods = nil
				n.set(policy.PIDAvailable, 10)
				n.at(g, 0)
				n.set(policy.PIDAvailable, 1000) // the condition outlives its threshold
				n.pods = slices.Concat(c.pods[turn/2:], c.pods[:turn/2])
				if turn%2 == 1 {
					slices.Reverse(n.pods)
				}
				var got []string
				for at := 3 * time.Second; at < 20*time.Second; at += time.Second {
					if p := n.at(g, at); p.Stop != nil {
						got = append(got, p.Stop.Pod)
						n.end(n.stops[len(n.stops)-1])
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("listed %d: stopped %q, want %q", turn, got, want)
				}
			}
		})
	}
}

// A pass that enforces limits reads no cgroups: with many pods, that would be most of its cost.
func TestLimitsReadNoCgroups(t *testing.T) {
	g, n := newManager(t, memoryHard)
	for i := range n.pods {
		n.pods[i].StorageLimit = 8 * testGiB
	}
	n.at(g, 0) // takes a sample
	before := n.measured
	if p := n.at(g, time.Second); p.Stop != nil || n.measured != before {
		t.Errorf("stopped %+v, read the cgroups %d times", p.Stop, n.measured-before)
	}
}

// A kubelet keeps the volumes of a pod that it starts again. If these alone exceed the limit, stopping the pod again is of no
// use, and would take the whole soft budget. It is stopped again if it keeps writing.
func TestLimitOfAPodThatKeepsItsFiles(t *testing.T) {
	for _, logs := range []bool{false, true} {
		testLimitOfAPodThatKeepsItsFiles(t, func(u *policy.DiskUsage, bytes int64) {
			if *u = diskBytes(0); logs {
				u.Logs = policy.Exactly(bytes)
			} else {
				u.Volumes = policy.Exactly(bytes)
			}
		})
	}
}

func testLimitOfAPodThatKeepsItsFiles(t *testing.T, fill func(*policy.DiskUsage, int64)) {
	t.Helper()
	g, n := newManager(t, "")
	n.pods = n.pods[:1]
	pod := &n.pods[0]
	pod.StorageLimit = 2 * testGiB
	fill(&pod.Disk, 3*testGiB)
	back := *pod
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Kind != api.KindLimit {
		t.Fatalf("stopped %+v", p.Stop)
	}
	n.end(n.stops[0])
	n.at(g, time.Second)
	back.ID, back.Created = "again", time.Hour+2*time.Second
	fill(&back.Disk, 3*testGiB+testGiB/2) // it has written until its end, after it was measured
	n.pods = append(n.pods, back)
	alarms := 0
	for at := time.Minute; at < 30*time.Minute; at += time.Minute {
		p := n.at(g, at)
		if p.Stop != nil || p.Held != api.HeldBreaker {
			t.Fatalf("after %s: stopped %+v, held by %q", at, p.Stop, p.Held)
		}
		if p.Alarm != "" {
			alarms++
		}
		wantLimitAlarm(t, g, true)
	}
	g = restarted(t, g, n)
	wantLimitAlarm(t, g, true)
	if p := n.at(g, 29*time.Minute+30*time.Second); p.Stop != nil || p.Alarm != "" {
		t.Errorf("after a restart: stopped %+v, alarm %q", p.Stop, p.Alarm)
	}
	of := n.pods
	n.pods = nil // deleted for a while
	n.at(g, 30*time.Minute-2*time.Second)
	wantLimitAlarm(t, g, false)
	n.pods = of
	n.at(g, 30*time.Minute-time.Second)
	wantLimitAlarm(t, g, true)
	if alarms != 1 {
		t.Errorf("%d alarms, want one", alarms)
	}
	g.Orders.Pause = &api.Pause{Until: api.Duration(10 * time.Hour)}
	n.at(g, 30*time.Minute)
	n.at(g, 3*time.Hour)
	g.Orders.Pause = nil
	if p := n.at(g, 3*time.Hour+time.Second); p.Stop != nil || p.Held != api.HeldBreaker {
		t.Errorf("after a pause: stopped %+v, held by %q", p.Stop, p.Held)
	}
	whole := n.pods[0].Disk
	n.pods[0].Disk = policy.DiskUsage{Rootfs: policy.Exactly(testGiB), Logs: policy.AtLeast(testGiB), Volumes: policy.AtLeast(testGiB / 2)} // being measured
	if p := n.at(g, 3*time.Hour+2*time.Second); p.Stop != nil || p.Held != api.HeldBreaker {
		t.Errorf("while it is measured: stopped %+v, held by %q", p.Stop, p.Held)
	}
	n.pods[0].Disk = whole
	n.pods[0].Disk.Rootfs = policy.Exactly(2*testGiB + 1)
	if p := n.at(restarted(t, g, n), 3*time.Hour+2*time.Second); p.Stop == nil {
		t.Errorf("once its layer exceeds the limit: held by %q", p.Held)
	}
	n.pods[0].Disk = whole
	fill(&n.pods[0].Disk, 3*testGiB+testGiB*3/4)
	if p := n.at(g, 3*time.Hour+2*time.Second); p.Stop == nil || p.Stop.Kind != api.KindLimit {
		t.Errorf("once it has written more: stopped %+v, held by %q", p.Stop, p.Held)
	}
	wantLimitAlarm(t, g, false)
}

// Pods without a UID are not one pod.
func TestLimitOfPodsWithoutUID(t *testing.T) {
	g, n := newManager(t, "")
	for i := range n.pods {
		n.pods[i].UID, n.pods[i].StorageLimit = "", testGiB
		n.pods[i].Disk = policy.DiskUsage{Rootfs: policy.Exactly(0), Logs: policy.Exactly(2 * testGiB), Volumes: policy.Exactly(0)}
	}
	for i, at := range []time.Duration{0, time.Second} {
		p := n.at(g, at)
		if p.Stop == nil || p.Stop.Kind != api.KindLimit {
			t.Fatalf("stop %d: %+v, held by %q", i, p.Stop, p.Held)
		}
		n.end(n.stops[i])
	}
}

// wantLimitAlarm checks whether the status and the metrics say that the stop of a pod for its limit is held.
func wantLimitAlarm(t *testing.T, g *Manager, want bool) {
	t.Helper()
	var got bool
	for _, a := range g.Status(func(policy.Signal) string { return "" }, false).Alarms {
		got = got || strings.Contains(a, keepsTooMuch)
	}
	if metric := g.Snapshot().Alarms[policy.PoolNodeBytes]; got != want || metric != want {
		t.Errorf("alarm %t, metric %t, want %t", got, metric, want)
	}
}

// A pod that was refused under one condition is not preferred as a victim under another one. An admission
// stop does not use up the reclaim of a disk.
func TestPassEnforcesForNoDisk(t *testing.T) {
	g, n := newManager(t, "admission.mode = 'stop'\neviction.hard.'nodefs.available' = '1Gi'\n")
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.protect("test")
	wantHeld(t, n.at(g, 0), api.HeldProtected)
	late := testPod("late", 0)
	late.Disk = diskBytes(400 * testMiB)
	late.Created = time.Hour + time.Second
	n.pods = append(n.pods, late)
	if p := n.at(g, 2*time.Second); p.Stop == nil || p.Stop.Kind != api.KindAdmission {
		t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
	}
	n.end(n.stops[0])
	wantSettled(t, n.at(g, 3*time.Second), 1)
	if len(n.reliefs) != 1 {
		t.Errorf("%d reclaims: the admission stop has used one up", len(n.reliefs))
	}
	late.ID, late.Created = "late2", time.Hour+4*time.Second
	n.pods = append(n.pods, late)
	n.protect("")
	wantStop(t, n.at(g, 5*time.Second), "d/big")
}

// No threshold waits for the effect of a stop that the configuration requires.
func TestAdmissionStopIsNotWaitedFor(t *testing.T) {
	g, n := newManager(t, `[admission]
mode = "stop"
[eviction.hard]
"memory.available" = "0%"
"nodefs.available" = "0%"
[eviction.soft]
"nodefs.available" = "10Gi"
[eviction.soft_grace_period]
"nodefs.available" = "1h"
`)
	n.set(policy.NodeFSAvailable, testGiB)
	n.at(g, 0)
	late := testPod("late", 0)
	late.Created = time.Hour + time.Second
	n.pods = append(n.pods, late)
	if p := n.at(g, 2*time.Second); p.Stop == nil || p.Stop.Kind != api.KindAdmission {
		t.Fatalf("%+v", p.Stop)
	}
	n.end(n.stops[0])
	if p := n.at(g, 3*time.Second); len(p.Settled) != 1 {
		t.Errorf("settled %+v", p.Settled)
	}
}

// An admission stop of a pod that had already ended costs no budget.
func TestPassAdmissionOfNobody(t *testing.T) {
	g, n := newManager(t, "admission.mode = 'stop'\n[eviction.hard]\n\"memory.available\" = \"1Gi\"\n")
	n.pods = n.pods[:1]
	n.pods[0].Protection = "test"
	n.set(policy.MemoryAvailable, testGiB/2)
	n.at(g, 0)
	before := g.restraint.Status(n.now).Soft.Left
	job := testPod("job", 1)
	job.Created = time.Hour + time.Second
	n.pods = append(n.pods, job)
	n.set(policy.MemoryAvailable, 4*testGiB)
	if p := n.at(g, 2*time.Second); p.Stop == nil || p.Stop.Kind != api.KindAdmission {
		t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
	}
	n.stops[0].outcome.Nothing = true
	close(n.stops[0].done)
	if p := n.at(g, 3*time.Second); len(p.Settled) != 1 || p.Stop != nil {
		t.Errorf("settled %+v, stopped %+v", p.Settled, p.Stop)
	}
	if left := g.restraint.Status(n.now).Soft.Left; left != before {
		t.Errorf("%v soft stops are left of %v", left, before)
	}
}

// A limit waits while a stop is in flight, because relief comes first.
func TestLimitWaitsForAStopInFlight(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.set(policy.MemoryAvailable, 8*testGiB)
	n.pods[1].StorageLimit = 1
	wantHeld(t, n.at(g, 10*time.Millisecond), "")
	n.end(n.stops[0])
	if p := n.at(g, 20*time.Millisecond); stopped(&p) != "d/small" || p.Stop.Kind != api.KindLimit {
		t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
	}
}

// A pod that an operator stops keeps its grace period and costs no budget when it exceeds its limit.
func TestLimitStopsNoPodTwice(t *testing.T) {
	g, n := newManager(t, memoryHard)
	before := g.restraint.Status(n.now).Soft.Left
	g.StopPod(t.Context(), &n.pods[1], time.Hour, "by root", &api.Pass{ID: 7, At: api.Duration(n.now)})
	n.pods[1].StorageLimit = 1
	wantHeld(t, n.at(g, 10*time.Millisecond), "")
	if left := g.restraint.Status(n.now).Soft.Left; len(n.stops) != 1 || left != before {
		t.Errorf("%d stops, %d soft stops are left of %d", len(n.stops), left, before)
	}
}

// What a pod has written above its limit may be what a full disk lacks: the stop for the limit removes it at once. While it is
// being deleted, no other pod is stopped, and the disk is measured again after that.
func TestLimitOnAFullDisk(t *testing.T) {
	g, n := newDiskManager(t)
	n.pods[0].StorageLimit = 2 * testGiB
	n.set(policy.NodeFSAvailable, testGiB/2)
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Kind != api.KindLimit || !n.stops[0].order.Discard || !n.stops[0].order.DiscardLogs {
		t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
	}
	n.end(n.stops[0])
	n.at(g, time.Second)
	close(n.reliefs[0].done)
	wantHeld(t, n.at(g, 2*time.Second), api.HeldInFlight)
	for at := 3 * time.Second; at <= time.Minute; at += 3 * time.Second { // its files are being deleted
		n.set(policy.NodeFSAvailable, testGiB/2+int64(at/time.Second)<<22)
		wantHeld(t, n.at(g, at), api.HeldInFlight)
	}
	wantHeld(t, n.at(g, time.Minute+diskStill-1), api.HeldInFlight)
	n.at(g, time.Minute+diskStill)
	close(n.reliefs[1].done) // which began before
	if p := n.at(g, time.Minute+diskStill+time.Second); p.Stop != nil {
		t.Fatalf("stopped %s by a measurement from before the stop", p.Stop.Pod)
	}
	n.at(g, time.Minute+diskStill+2*time.Second)
	if len(n.reliefs) != 3 {
		t.Fatalf("%d reclaims", len(n.reliefs))
	}
	stopsAfterReclaim(t, g, n, time.Minute+diskStill+3*time.Second)
}

// Stops for limits stay within the budgets while the disk is at its hard threshold: two soft stops.
func TestLimitsOnAFullDiskKeepTheirBudget(t *testing.T) {
	g, n := newDiskManager(t)
	n.pods = nil
	for i := range 10 {
		p := testPod(fmt.Sprint("pod-", i), 4*testGiB)
		p.StorageLimit = 2 * testGiB
		n.pods = append(n.pods, p)
	}
	n.set(policy.NodeFSAvailable, testGiB/2)
	for at := time.Duration(0); at < 20*time.Second; at += time.Second {
		p := n.at(g, at)
		if p.Stop == nil && len(n.stops) > 0 && len(n.pods)+len(n.stops) > 10 {
			n.stops[len(n.stops)-1].outcome.Returned = true
			n.end(n.stops[len(n.stops)-1])
		}
	}
	if len(n.stops) != 2 {
		t.Errorf("%d stops", len(n.stops))
	}
}

// Memory comes before disks: if its pool wants the pod that a disk's pool waits for, it waits for it in its place.
func TestMemoryWaitsForALimitOnAFullDisk(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"1Gi\"\n")
	n.slow = true
	n.pods[0].StorageLimit = 2 * testGiB
	n.set(policy.NodeFSAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.set(policy.MemoryAvailable, testGiB/2)
	wantHeld(t, n.at(g, 10*time.Millisecond), api.HeldInFlight)
	n.remains["big"], n.stops[0].outcome.Shared = policy.Known(3*testGiB), true
	n.end(n.stops[0])
	for at := 20 * time.Millisecond; at < 500*time.Millisecond; at += 20 * time.Millisecond {
		if p := n.at(g, at); p.Stop != nil {
			t.Fatalf("after %s: stopped %s while memory comes back", at, p.Stop.Pod)
		}
		n.remains["big"] = policy.Known(n.remains["big"].Value - 100*testMiB)
	}
}

// The disk's pool waits for a stop for a limit also if a container has started in the pod since it was listed and measured.
func TestLimitOnAFullDiskOfAPodListedAgain(t *testing.T) {
	g, n := newDiskManager(t)
	n.pods[0].StorageLimit = 2 * testGiB
	again := n.pods[0]
	again.Disk, again.Inodes = policy.DiskUsage{}, policy.DiskUsage{}
	n.renewed = map[string]inventory.Pod{"big": again}
	n.set(policy.NodeFSAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	close(n.reliefs[0].done)
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
}

// A sandbox that a stop for a limit has emptied may still be listed. It is not stopped again.
func TestLimitStopsNoEmptiedPod(t *testing.T) {
	g, n := newManager(t, "backoff.first = '0s'\n")
	n.pods[0].StorageLimit = 2 * testGiB
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Kind != api.KindLimit {
		t.Fatalf("stopped %+v", p.Stop)
	}
	n.kill(n.stops[0])
	for _, at := range []time.Duration{time.Second, 2 * time.Second} {
		if p := n.at(g, at); p.Stop != nil || p.Held != "" {
			t.Errorf("after %s: stopped %+v, held by %q", at, p.Stop, p.Held)
		}
	}
}

// What runs in the cgroup of an emptied sandbox may be another sandbox of the pod. Only a listing shows that.
func TestLimitStopsNoEmptiedPodOfAnOldListing(t *testing.T) {
	for name, c := range map[string]struct {
		at      time.Duration
		renewed bool          // something has started in its cgroup
		listed  bool          // the runtime is back, and lists another sandbox
		old     time.Duration // when the old listing was made
	}{
		"another sandbox":                               {17 * time.Second, true, true, 0},
		"another sandbox, and no listing":               {17 * time.Second, true, false, 0},
		"another sandbox, and an old listing after all": {17 * time.Second, true, false, 1500 * time.Millisecond},
		"nothing listed for over a minute":              {62 * time.Second, false, false, 0},
	} {
		g, n := newManager(t, "backoff.first = '0s'\n")
		n.pods[0].StorageLimit, n.listedAt = 2*testGiB, time.Hour
		if p := n.at(g, 0); p.Stop == nil || p.Stop.Kind != api.KindLimit {
			t.Fatalf("stopped %+v", p.Stop)
		}
		n.kill(n.stops[0])
		n.at(g, time.Second)
		n.down, n.listedAt = true, time.Hour+c.old
		if c.renewed {
			n.renewed = map[string]inventory.Pod{"big": n.pods[0]}
		}
		n.onListing = func() {
			if c.listed {
				n.down, n.renewed, n.pods = false, nil, n.pods[1:]
			}
		}
		if p := n.at(g, c.at); p.Stop != nil {
			t.Errorf("%s: stopped %+v", name, p.Stop)
		}
	}
}

// Nor is a sandbox stopped that another listing does not have any more.
func TestLimitOfASandboxThatIsGone(t *testing.T) {
	g, n := newManager(t, "backoff.first = '0s'\n")
	n.pods[0].StorageLimit = 2 * testGiB
	n.renewed = map[string]inventory.Pod{"big": n.pods[0]}
	n.onListing = func() { n.renewed, n.pods = nil, n.pods[1:] }
	if p := n.at(g, 0); p.Stop != nil {
		t.Errorf("stopped %+v", p.Stop)
	}
}

// The pool that wants the stop of a pod that is being stopped for another reason waits for it as for a stop of its own: while
// its memory is being freed, no other pod is stopped.
func TestPoolWaitsForAStopOfAnotherCause(t *testing.T) {
	g, n := newManager(t, memoryHard+"[[limit]]\nname = \"*\"\nephemeral_storage = \"2Gi\"\n")
	n.pods[0].StorageLimit = 2 * testGiB
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Kind != api.KindLimit {
		t.Fatalf("stopped %+v", p.Stop)
	}
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, time.Second); p.Escalated != "d/big" {
		t.Fatalf("escalated %q, held by %q", p.Escalated, p.Held)
	}
	n.grow("big", -7*testGiB/2) // it is being freed: now the other one is larger
	wantHeld(t, n.at(g, time.Second+5*time.Millisecond), api.HeldInFlight)
	n.end(n.stops[0])
	n.set(policy.MemoryAvailable, 4*testGiB)
	wantSettled(t, n.at(g, 2*time.Second), 1)
	if since := g.pools[policy.PoolNodeBytes].reclaim.since; since != n.now {
		t.Errorf("the disks are as they were measured at %s, before %s", since, n.now)
	}
}

// A kubelet has started a pod again that exceeded its limit. The disk does not wait for its volumes to come back.
func TestLimitOnAFullDiskOfAPodThatKeepsItsVolumes(t *testing.T) {
	g, n := newDiskManager(t)
	n.pods[0].StorageLimit = 2 * testGiB
	n.pods[0].Disk.Rootfs, n.pods[0].Disk.Volumes = policy.Exactly(testGiB), policy.Exactly(3*testGiB/2)
	g.restraint.Begin(policy.Stop{UID: "big", Sandbox: "before", Cause: policy.CauseDrain}, time.Minute)
	n.set(policy.NodeFSAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.end(n.stops[0])
	n.at(g, time.Second)
	n.set(policy.NodeFSAvailable, testGiB/2+testGiB)
	wantSettled(t, n.at(g, 2*time.Second), 1)
}
