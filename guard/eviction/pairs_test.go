package eviction

import (
	"slices"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// What a pod uses of a disk is not known while it is measured again. A hard threshold waits for its soft stop in flight all the
// same: unknown is not nothing.
func TestHardDiskWaitsForASoftStopWhileItMeasures(t *testing.T) {
	g, n := newManager(t, disksAlone+`"nodefs.available" = "1Gi"
[eviction.soft]
"nodefs.available" = "6Gi"
[eviction.soft_grace_period]
"nodefs.available" = "1s"
`)
	n.slow = true
	n.pods[0].Disk = diskBytes(3 * testGiB)
	n.set(policy.NodeFSAvailable, 2*testGiB)
	n.at(g, 0)
	n.at(g, time.Second)
	close(n.reliefs[0].done)
	wantStop(t, n.at(g, 2*time.Second), "d/big")
	n.at(g, 13*time.Second) // the reclaim is repeated
	n.diskAge = 15 * time.Second
	n.set(policy.NodeFSAvailable, testGiB/2)
	p := n.at(g, 14*time.Second)
	if p.Escalated != "d/big" {
		t.Errorf("escalated %q, held by %q", p.Escalated, p.Held)
	}
	n.end(n.stops[0])
	n.diskAge = 0
	close(n.reliefs[len(n.reliefs)-1].done)
	for i := range 4 { // its files are being deleted
		p := n.at(g, time.Duration(15+i)*time.Second)
		wantHeld(t, p, api.HeldInFlight)
	}
}

// A soft stop that does not help a hard threshold enough may still be the first that it chooses. Then the pool waits for it.
func TestHardThresholdChoosesItsSoftStopInFlight(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.pods = n.pods[:1]
	n.set(policy.MemoryAvailable, 3*testGiB/2)
	n.at(g, 0)
	wantStop(t, n.at(g, 10*time.Second), "d/big")
	n.pods[0].Memory = policy.Known(29 * testMiB) // nearly all of it has been given back, and others have taken it
	for i := range 40 {
		n.pods = append(n.pods, testPod(string(rune('a'+i%26))+string(rune('a'+i/26)), 20*testMiB))
	}
	n.set(policy.MemoryAvailable, testGiB-600*testMiB)
	p := n.at(g, 20*time.Second)
	if p.Escalated != "d/big" || p.Stop != nil {
		t.Fatalf("escalated %q, stopped %q, held by %q", p.Escalated, stopped(&p), p.Held)
	}
	n.end(n.stops[0])
	n.remains["big"] = policy.Known(25 * testMiB)
	p = n.at(g, 20*time.Second+10*time.Millisecond)
	wantHeld(t, p, api.HeldInFlight)
}

// A stop that became hard for PIDs waits for the runtime. When memory is short, too, its containers are killed at once.
func TestHardMemoryKillsWhatHardPIDsStop(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.obs[policy.PIDAvailable] = policy.Observation{Available: 1000, Capacity: 32768, Status: policy.OK}
	n.pods[0].PIDs = policy.Known(5000)
	n.set(policy.MemoryAvailable, 3*testGiB/2)
	n.at(g, 0)
	wantStop(t, n.at(g, 10*time.Second), "d/big")
	n.obs[policy.PIDAvailable].Available = 50
	if p := n.at(g, 11*time.Second); p.Escalated != "d/big" || n.stops[0].direct {
		t.Fatalf("escalated %q, directly %t, held by %q", p.Escalated, n.stops[0].direct, p.Held)
	}
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 12*time.Second); !n.stops[0].direct || p.Escalated != "d/big" {
		t.Errorf("escalated %q, %d times, directly %t", p.Escalated, n.stops[0].escalated, n.stops[0].direct)
	}
	if n.at(g, 13*time.Second); n.stops[0].escalated != 2 {
		t.Errorf("escalated %d times", n.stops[0].escalated)
	}
}

// The pod that a disk would choose is being stopped for another reason. The disk waits for what the pod leaves there as for a stop
// of its own.
func TestDiskWaitsForAStopOfAnotherCause(t *testing.T) {
	g, n := newDiskManager(t)
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.at(g, 0)
	close(n.reliefs[0].done)
	g.StopPod(t.Context(), &n.pods[0], time.Hour, "by root", &api.Pass{ID: 7, At: api.Duration(n.now)})
	p := n.at(g, time.Second)
	wantHeld(t, p, api.HeldInFlight)
	if o := n.stops[0].order; p.Escalated != "d/big" || !o.Discard || !o.DiscardLogs {
		t.Errorf("escalated %q, discards containers %t, logs %t", p.Escalated, o.Discard, o.DiscardLogs)
	}
	n.end(n.stops[0])
	for i := range 6 { // its files are being deleted
		wantHeld(t, n.at(g, time.Duration(2+i)*time.Second), api.HeldInFlight)
		n.set(policy.NodeFSAvailable, testGiB/2+int64(i)*50*testMiB)
	}
	n.set(policy.NodeFSAvailable, 5*testGiB)
	wantSettled(t, n.at(g, 10*time.Second), 1)
}

// A pod that memory stops is the first for a disk, too: the stop discards what the pod has written. When it is over for memory, the
// disk waits until that is deleted and for another reclaim before it stops another pod.
func TestDiskReclaimsWhatAStopForMemoryLeaves(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"1Gi\"\n")
	n.slow = true
	n.pods[0].Priority, n.pods[0].Disk = -1, diskBytes(100*testMiB)
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.at(g, 0)
	close(n.reliefs[0].done)
	n.leak("big", testGiB/2)
	if p := n.at(g, time.Second); p.Stop == nil || p.Stop.Signal != "memory.available" {
		t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
	}
	n.at(g, time.Second+5*time.Millisecond)
	if o := n.stops[0].order; !o.Discard || !o.DiscardLogs {
		t.Errorf("discards containers %t, logs %t", o.Discard, o.DiscardLogs)
	}
	n.end(n.stops[0])
	n.set(policy.MemoryAvailable, 5*testGiB)
	p := n.at(g, 2*time.Second)
	wantSettled(t, p, 1)
	for i := range 10 { // its files are being deleted
		wantHeld(t, p, api.HeldInFlight)
		n.set(policy.NodeFSAvailable, testGiB/2+int64(i+1)*10*testMiB)
		p = n.at(g, time.Duration(3+i)*time.Second)
		wantSettled(t, p, 0)
	}
	reclaims := len(n.reliefs)
	if n.reclaimed[reclaims-1].Signal != policy.NodeFSAvailable || reclaims < 3 {
		t.Fatalf("reclaimed for %+v", n.reclaimed)
	}
	close(n.reliefs[reclaims-1].done) // before they are deleted
	n.at(g, 13*time.Second)
	p = n.at(g, 18*time.Second)
	wantSettled(t, p, 0)
	wantHeld(t, p, api.HeldReclaiming)
	if len(n.reliefs) == reclaims {
		t.Fatal("no reclaim after they were deleted")
	}
	stopsAfterReclaim(t, g, n, 19*time.Second)
}

// stoppedOnAShortDisk returns a manager that is stopping "big" for memory, while a disk is short on which the pod has so much.
func stoppedOnAShortDisk(t *testing.T, bytes int64) (*Manager, *fakeNode) {
	t.Helper()
	g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"1Gi\"\n")
	n.pods[0].Priority, n.pods[0].Disk = -1, diskBytes(bytes)
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.leak("big", testGiB/2)
	n.at(g, 0)
	return g, n
}

// While the kernel still gives back the memory of such a pod, its files are being deleted as well. No other pod is stopped for the
// disk, although a reclaim has ended meanwhile.
func TestDiskWaitsWhileMemoryComesBack(t *testing.T) {
	g, n := stoppedOnAShortDisk(t, 100*testMiB)
	wantHeld(t, n.at(g, 10*time.Millisecond), api.HeldInFlight)
	n.set(policy.MemoryAvailable, 2*testGiB)
	n.end(n.stops[0])
	for i := range 20 {
		n.remains["big"] = policy.Known(int64(20-i) * 100 * testMiB)
		wantHeld(t, n.at(g, time.Duration(2+i)*10*time.Millisecond), api.HeldInFlight)
	}
}

// A sleep of the machine delays such a stop once, also if the runtime has not unmounted the pod's files in memory yet.
func TestDiskWaitsForAStopThroughASleep(t *testing.T) {
	const slept = 2 * time.Hour
	g, n := stoppedOnAShortDisk(t, 100*testMiB)
	wantHeld(t, n.at(g, 10*time.Millisecond), api.HeldInFlight)
	n.stops[0].outcome.Shared, n.remains["big"] = true, policy.Known(3*testGiB)
	n.set(policy.MemoryAvailable, 2*testGiB)
	n.end(n.stops[0])
	n.at(g, 20*time.Millisecond)
	wantSettled(t, n.at(g, 20*time.Millisecond+sharedStill), 1)
	n.sleep(g, slept)
	wantStop(t, n.at(g, slept+diskEffectWait+5*time.Second), "d/small")
}

// The same for a pod that is stopped for another device.
func TestDiskReclaimsWhatAStopForAnotherDeviceLeaves(t *testing.T) {
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n\"imagefs.available\" = \"1Gi\"\n")
	n.layout, n.slow = policy.DedicatedImageFS, true
	n.pods[0].Disk.Logs = policy.Exactly(2 * testGiB)
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.set(policy.ImageFSAvailable, testGiB/2)
	n.at(g, 0)
	for _, r := range n.reliefs {
		close(r.done)
	}
	wantStop(t, n.at(g, time.Second), "d/big")
	wantHeld(t, n.at(g, time.Second+5*time.Millisecond), api.HeldInFlight)
	n.end(n.stops[0])
	if p := n.at(g, 2*time.Second); p.Stop != nil {
		t.Fatalf("stopped %s before another reclaim", p.Stop.Pod)
	}
	if len(n.reliefs) < 3 {
		t.Errorf("%d reclaims", len(n.reliefs))
	}
}

// Memory takes over a stop for a limit that a disk waits for. The disk stops no other pod before what the stop leaves there is
// reclaimed.
func TestDiskReclaimsWhatALimitLeavesThatMemoryWaitsFor(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"1Gi\"\n")
	n.slow = true
	n.pods[0].StorageLimit, n.pods[1].Priority = 2*testGiB, -1
	n.set(policy.NodeFSAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	close(n.reliefs[0].done)
	n.pods[1].Memory = policy.Known(0)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantHeld(t, n.at(g, 10*time.Millisecond), api.HeldInFlight)
	n.end(n.stops[0])
	if p := n.at(g, 20*time.Millisecond); p.Stop != nil || len(n.reliefs) < 2 {
		t.Fatalf("stopped %q after %d reclaims", stopped(&p), len(n.reliefs))
	}
}

// What a pod leaves on a disk that is short is removed, whatever it is stopped for.
func TestStopForMemoryRemovesWhatAShortDiskLacks(t *testing.T) {
	for name, room := range map[string]int64{"short": testGiB / 2, "not short": 2 * testGiB} {
		g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"1Gi\"\n")
		n.slow = true
		n.set(policy.NodeFSAvailable, room)
		n.set(policy.MemoryAvailable, testGiB/2)
		if p := n.at(g, 0); p.Stop == nil || p.Stop.Signal != "memory.available" {
			t.Fatalf("%s: stopped %+v, held by %q", name, p.Stop, p.Held)
		}
		if o, want := n.stops[0].order, name == "short"; o.Discard != want || o.DiscardLogs != want {
			t.Errorf("%s: discards containers %t, logs %t", name, o.Discard, o.DiscardLogs)
		}
	}
}

// So do the bytes and the inodes of a disk that have both chosen the pod, which is saved once.
func TestTwoPoolsOfADiskWaitWhileMemoryComesBack(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"1Gi\"\n\"nodefs.inodesFree\" = \"100\"\n")
	n.pods[0].Priority, n.pods[0].Disk = -1, diskBytes(100*testMiB)
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.set(policy.NodeFSInodesFree, 10)
	n.leak("big", testGiB/2)
	n.at(g, 0)
	for i, unsaved := range []bool{true, false} {
		if wantHeld(t, n.at(g, time.Duration(1+i)*10*time.Millisecond), api.HeldInFlight); g.Unsaved() != unsaved {
			t.Errorf("unsaved %v, waits %+v", g.Unsaved(), g.flights[0].stop.Waits)
		}
	}
	n.set(policy.MemoryAvailable, 2*testGiB)
	n.end(n.stops[0])
	for i := range 20 {
		n.remains["big"] = policy.Known(int64(20-i) * 100 * testMiB)
		wantHeld(t, n.at(g, time.Duration(3+i)*10*time.Millisecond), api.HeldInFlight)
	}
}

// shortOfTwoDevices returns a manager of a node on which both nodefs and imagefs are short, on devices of their own. Each pod has a
// gibibyte on both.
func shortOfTwoDevices(t *testing.T, conf string) (*Manager, *fakeNode) {
	t.Helper()
	g, n := newManager(t, conf+"\"nodefs.available\" = \"1Gi\"\n\"imagefs.available\" = \"1Gi\"\n")
	n.layout = policy.DedicatedImageFS
	for i := range n.pods {
		n.pods[i].Disk = policy.DiskUsage{Rootfs: policy.Exactly(testGiB), Logs: policy.Exactly(testGiB), Volumes: policy.Exactly(0)}
	}
	n.pods[0].Priority = -1
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.set(policy.ImageFSAvailable, testGiB/2)
	return g, n
}

// endedOnTwoDevices is shortOfTwoDevices after a second, in which memory has stopped "big" and both disks have chosen it, too. Its
// processes have ended, and no memory is lacking any more.
func endedOnTwoDevices(t *testing.T) (*Manager, *fakeNode) {
	t.Helper()
	g, n := shortOfTwoDevices(t, memoryHard)
	n.leak("big", testGiB/2)
	n.at(g, 0)
	n.at(g, time.Second)
	n.set(policy.MemoryAvailable, 2*testGiB)
	n.end(n.stops[0])
	return g, n
}

// Each disk that has chosen the pod waits for it, however many there are: from when its processes have ended, whether memory has come
// back or not, as long as for a stop of its own, and over a restart, too.
func TestDisksOfTwoDevicesWaitForTheSamePod(t *testing.T) {
	const deleting = 10 // seconds
	for _, restarts := range []int{-1, 0, 1, 5} {
		g, n := shortOfTwoDevices(t, memoryHard)
		n.leak("big", testGiB/2)
		if p := n.at(g, 0); p.Stop == nil || p.Stop.Signal != "memory.available" {
			t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
		}
		n.at(g, 10*time.Millisecond)
		n.set(policy.MemoryAvailable, 2*testGiB)
		n.end(n.stops[0])
		wait := func(at time.Duration) {
			t.Helper()
			p := n.at(g, at)
			waiting := slices.DeleteFunc(slices.Clone(p.Holds()), func(h api.Hold) bool { return h.Reason != api.HeldInFlight })
			if p.Stop != nil || len(waiting) != 2 {
				t.Fatalf("restarted %d: at %s stopped %q, held %+v", restarts, at, stopped(&p), p.Holds())
			}
		}
		for i := range 20 {
			n.remains["big"] = policy.Known(int64(20-i) * 100 * testMiB)
			wait(time.Duration(2+i) * 10 * time.Millisecond)
		}
		n.remains["big"] = policy.Known(0)
		for i := range deleting {
			if i == restarts {
				g = restarted(t, g, n)
			}
			n.set(policy.NodeFSAvailable, testGiB/2+int64(i)*10*testMiB)
			n.set(policy.ImageFSAvailable, testGiB/2+int64(i)*10*testMiB)
			wait(time.Duration(1+i) * time.Second)
		}
		wait(diskEffectWait - time.Second)
		wantStop(t, n.at(g, diskEffectWait+deleting*time.Second), "d/small")
	}
}

// What has come back of one disk says nothing about the other, where the files of the pod may be deleted later.
func TestDiskWaitsForItsOwnFiles(t *testing.T) {
	g, n := shortOfTwoDevices(t, disksAlone)
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Pod != "d/big" || p.Stop.Signal != "nodefs.available" {
		t.Fatalf("stopped %+v, held by %q", p.Stop, p.Held)
	}
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
	n.end(n.stops[0])
	n.at(g, 2*time.Second)
	n.set(policy.NodeFSAvailable, 5*testGiB)
	wantSettled(t, n.at(g, 3*time.Second), 1)
	wantHeld(t, n.at(g, diskEffectWait), api.HeldInFlight)
	wantStop(t, n.at(g, diskEffectWait+2*time.Second), "d/small")
}

// A disk that has all its files back waits no longer, which is saved. The other one waits on, also in the run of the service after the
// next.
func TestDisksWaitForThePodOnTheirOwn(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		g, n := endedOnTwoDevices(t)
		wantHeld(t, n.at(g, 2*time.Second), api.HeldInFlight)
		if restarts {
			g = restarted(t, g, n)
			wantHeld(t, n.at(g, 3*time.Second), api.HeldInFlight)
		}
		n.set(policy.NodeFSAvailable, 3*testGiB)
		if wantHeld(t, n.at(g, 4*time.Second), api.HeldInFlight); !g.Unsaved() || g.pools[policy.PoolNodeBytes].flight != nil {
			t.Errorf("unsaved %v, nodefs waits for %+v", g.Unsaved(), g.pools[policy.PoolNodeBytes].flight)
		}
		if restarts {
			g = restarted(t, g, n)
		}
		wantHeld(t, n.at(g, 5*time.Second), api.HeldInFlight)
		if s := g.restraint.Unfinished(policy.PoolNodeBytes); s != nil {
			t.Errorf("nodefs waits for %+v", s)
		}
		wantStop(t, n.at(g, diskEffectWait+5*time.Second), "d/small")
	}
}

// A disk that is not read yet after a restart may still be short.
func TestRestartAwaitsFilesOnDisksThatAreNotReadYet(t *testing.T) {
	g, n := endedOnTwoDevices(t)
	n.at(g, 2*time.Second)
	node, image := n.obs[policy.NodeFSAvailable], n.obs[policy.ImageFSAvailable]
	n.obs[policy.NodeFSAvailable].Status, n.obs[policy.ImageFSAvailable].Status = policy.Failed, policy.Failed
	g = restarted(t, g, n)
	n.at(g, 3*time.Second)
	n.obs[policy.NodeFSAvailable], n.obs[policy.ImageFSAvailable] = node, image
	for i := range 5 {
		if p := n.at(g, time.Duration(4+i)*time.Second); p.Stop != nil || len(p.Holds()) != 2 {
			t.Fatalf("stopped %q, held %+v", stopped(&p), p.Holds())
		}
	}
}

// A disk may run short, or choose the pod, only when its processes have ended already. Its files are being deleted as well then.
func TestDiskChoosesAPodThatHasEnded(t *testing.T) {
	g, n := stoppedOnAShortDisk(t, 300*testMiB)
	n.set(policy.NodeFSAvailable, 2*testGiB)
	n.kill(n.stops[0])
	n.remains["big"] = policy.Known(5 * testGiB)
	n.at(g, 10*time.Millisecond)
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.remains["big"] = policy.Known(4 * testGiB)
	wantHeld(t, n.at(g, 20*time.Millisecond), api.HeldInFlight)
	n.pods, n.remains["big"] = n.pods[1:], policy.Known(0)
	n.set(policy.MemoryAvailable, 4*testGiB)
	p := n.at(g, 30*time.Millisecond)
	wantSettled(t, p, 1)
	wantHeld(t, p, api.HeldInFlight)
}

// The inodes of a disk that waits for the files of a pod come back with its bytes: no other pod is stopped for them meanwhile.
func TestInodesComeBackWithBytes(t *testing.T) {
	g, n := newManager(t, memoryHard+"\"nodefs.available\" = \"1Gi\"\n\"nodefs.inodesFree\" = \"100\"\n")
	n.pods[0].Priority = -1
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.set(policy.NodeFSInodesFree, 200)
	n.leak("big", testGiB/2)
	n.at(g, 0)
	n.at(g, time.Second)
	n.set(policy.MemoryAvailable, 4*testGiB)
	n.end(n.stops[0])
	wantSettled(t, n.at(g, 2*time.Second), 1)
	for i := range 3 {
		n.set(policy.NodeFSInodesFree, 60+int64(i))
		if p := n.at(g, time.Duration(3+i)*time.Second); p.Stop != nil || len(p.Holds()) != 2 {
			t.Fatalf("stopped %q, held %+v", stopped(&p), p.Holds())
		}
	}
}

// A stop that fails leaves its pod as it is: the disks wait for nothing, and nothing is saved again and again.
func TestDiskDoesNotWaitForAStopThatHasFailed(t *testing.T) {
	g, n := shortOfTwoDevices(t, disksAlone)
	wantStop(t, n.at(g, 0), "d/big")
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
	close(n.stops[0].done)
	n.set(policy.NodeFSAvailable, testGiB/2+testMiB)
	n.at(g, 2*time.Second)
	for i := range 5 { // one of its containers has ended
		n.set(policy.NodeFSAvailable, testGiB/2+int64(i+2)*10*testMiB)
		p := n.at(g, 2*time.Second+time.Duration(i+1)*failedStill/2)
		if wantSettled(t, p, 0); g.Unsaved() || len(g.flights[0].stop.Waits) > 0 {
			t.Errorf("unsaved %v, waits %+v", g.Unsaved(), g.flights[0].stop.Waits)
		}
	}
	wantStop(t, n.at(g, 10*time.Second), "d/small")
	wantSettled(t, n.at(g, 11*time.Second), 0)
}

// A container has started in a pod that a stop has ended, while a disk waits for its files. Memory does not wait for them, and stops
// the pod again. The disk still waits then.
func TestMemoryDoesNotWaitForFiles(t *testing.T) {
	for name, begin := range map[string]func(*Manager, *fakeNode){
		"for memory": func(_ *Manager, n *fakeNode) { n.leak("big", testGiB/2) },
		"for a limit": func(_ *Manager, n *fakeNode) {
			n.pods[0].StorageLimit, n.slow = testGiB, true
		},
	} {
		g, n := shortOfTwoDevices(t, memoryHard)
		begin(g, n)
		wantStop(t, n.at(g, 0), "d/big")
		for _, r := range n.reliefs {
			if n.slow {
				close(r.done)
			}
		}
		n.slow = false
		n.at(g, time.Second)
		n.kill(n.stops[0])
		n.pods[0].Memory = policy.Known(0)
		n.set(policy.MemoryAvailable, 8*testGiB)
		n.set(policy.NodeFSAvailable, 3*testGiB)
		wantSettled(t, n.at(g, 2*time.Second), 1)
		n.at(g, 19*time.Second)
		n.listedAt = time.Hour + 20*time.Second // it is listed again
		n.leak("big", testGiB/2)
		wantStop(t, n.at(g, 20*time.Second), "d/big")
		if f := g.pools[policy.PoolMemory].flight; len(g.flights) != 1 || f != g.flights[0] || len(f.stop.Waits) != 1 {
			t.Fatalf("%s: memory waits for %+v, in flight are %d", name, f, len(g.flights))
		}
		n.end(n.stops[1])
		n.set(policy.MemoryAvailable, 8*testGiB)
		p := n.at(g, 21*time.Second)
		wantSettled(t, p, 1)
		wantHeld(t, p, api.HeldInFlight)
		wantHeld(t, n.at(g, 50*time.Second), api.HeldInFlight)
		wantStop(t, n.at(g, 52*time.Second), "d/small")
	}
}

// A disk waits for an operator's stop with a longer grace period than its own would have, and then, at a hard threshold, as for one of
// its own. It is over once, whether the sandbox is still listed or not, and saved as over.
func TestDiskAwaitsAnOperatorsStopThatBecomesItsOwn(t *testing.T) {
	g, n := newManager(t, "[eviction]\nmax_pod_grace_period = \"10s\"\n"+disksAlone+`"nodefs.available" = "1Gi"
[eviction.soft]
"nodefs.available" = "2Gi"
[eviction.soft_grace_period]
"nodefs.available" = "0s"
`)
	n.pods[0].Grace = time.Hour
	g.StopPod(t.Context(), &n.pods[0], time.Hour, "by root", &api.Pass{ID: 7, At: api.Duration(n.now)})
	n.set(policy.NodeFSAvailable, 3*testGiB/2)
	wantHeld(t, n.at(g, time.Second), api.HeldInFlight)
	n.set(policy.NodeFSAvailable, testGiB/2)
	p := n.at(g, 2*time.Second)
	if wantHeld(t, p, api.HeldInFlight); p.Escalated != "d/big" {
		t.Errorf("escalated %q", p.Escalated)
	}
	n.end(n.stops[0])
	n.at(g, 3*time.Second)
	n.set(policy.NodeFSAvailable, 6*testGiB)
	wantSettled(t, n.at(g, 4*time.Second), 1)
	if s := g.restraint.Unfinished(policy.PoolNodeBytes); s != nil {
		t.Errorf("still in flight: %+v", s)
	}
	wantSettled(t, n.at(g, 5*time.Second), 0)
	wantSettled(t, n.at(g, 20*time.Minute), 0)
}

// A sandbox whose processes have ended may still be listed after a restart. Its stop is repeated, and meanwhile each disk that waited
// for its files waits, whatever ranks first there.
func TestRestartStopsAgainForTwoDisks(t *testing.T) {
	g, n := shortOfTwoDevices(t, memoryHard)
	n.leak("big", testGiB/2)
	n.at(g, 0)
	n.at(g, 10*time.Millisecond)
	n.kill(n.stops[0])
	n.pods[0].Memory, n.pods[0].PIDs = policy.Known(0), policy.Known(0)
	n.set(policy.MemoryAvailable, 8*testGiB)
	n.at(g, time.Second)
	n.at(g, time.Second+100*time.Millisecond)
	g = restarted(t, g, n)
	n.pods[0].Priority = 1
	for i := range 3 {
		if p := n.at(g, time.Duration(2+i)*time.Second); p.Stop != nil || len(p.Holds()) != 2 || len(n.stops) != 2 {
			t.Fatalf("pass %d: stopped %q, held %+v, %d stops", i, stopped(&p), p.Holds(), len(n.stops))
		}
	}
	n.end(n.stops[1])
	for i := range 20 {
		if p := n.at(g, time.Duration(5+i)*time.Second); p.Stop != nil || len(p.Holds()) != 2 {
			t.Fatalf("pass %d afterwards: stopped %q, held %+v", i, stopped(&p), p.Holds())
		}
	}
}
