package eviction

import (
	"slices"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// Before a listed pod is stopped, criguard re-lists, so that a pod that has just started can be the victim.
func TestPassUnlistedPodIsTheVictim(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.hidden = []inventory.Pod{testPod("new", 6*testGiB)}
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Pod != "d/new" || n.listed != 1 {
		t.Errorf("stopped %+v after %d fresh listings, want d/new after one", p.Stop, n.listed)
	}
}

// A listing that was in progress is enough if it has the pod. If it began before the pod, criguard lists again.
func TestPassTakesTheListingInProgress(t *testing.T) {
	for early, want := range map[bool]int{true: 1, false: 2} {
		g, n := newManager(t, softAndHard)
		n.hidden = []inventory.Pod{testPod("new", 6*testGiB)}
		n.inProgress, n.early = true, early
		n.set(policy.MemoryAvailable, testGiB/2)
		if wantStop(t, n.at(g, 0), "d/new"); n.listed != want || n.confirmed {
			t.Errorf("in progress with the pod: %t: listed %d times, confirmed %t; want %d", early, n.listed, n.confirmed, want)
		}
	}
}

// So it is for a container that has started in the victim since the listing.
func TestStopTakesTheListingInProgress(t *testing.T) {
	for early, want := range map[bool]int{true: 1, false: 2} {
		g, n := newManager(t, softAndHard)
		again := n.pods[0]
		again.Containers = []inventory.Container{{ID: "new"}}
		n.renewed, n.inProgress, n.early = map[string]inventory.Pod{again.ID: again}, true, early
		n.set(policy.MemoryAvailable, testGiB/2)
		wantStop(t, n.at(g, 0), "d/big")
		if o := n.stops[0].order; n.listed != want || o.Pod.Containers[0].ID != "new" || len(o.Unlisted) != 0 {
			t.Errorf("in progress with the container: %t: listed %d times, stopped %+v, unlisted %v; want %d", early, n.listed, o.Pod.Containers, o.Unlisted, want)
		}
	}
}

// What a listing lacks that was in progress is not confirmed as unlisted.
func TestListingInProgressConfirmsNothing(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.foreign, n.inProgress, n.down = 6*testGiB, true, true
	n.set(policy.MemoryAvailable, testGiB/2)
	if wantHeld(t, n.at(g, 0), api.HeldUnlisted); n.listed != 2 || n.confirmed {
		t.Errorf("listed %d times, confirmed %t", n.listed, n.confirmed)
	}
}

// A listing that takes longer than the pass waited confirms what it lacks when it has ended.
func TestSlowListingConfirmsWhatItLacks(t *testing.T) {
	g, n := newManager(t, softAndHard)
	n.foreign, n.busy = 6*testGiB, true
	n.set(policy.MemoryAvailable, testGiB/2)
	for i := range 2 { // it has not ended yet
		wantHeld(t, n.at(g, time.Duration(i)*250*time.Millisecond), api.HeldUnlisted)
	}
	n.listedAt = time.Hour
	wantStop(t, n.at(g, 500*time.Millisecond), "d/big")
}

// Hard memory lists only if an unlisted cgroup uses more than the victim. No listed pod is stopped in its place, until the
// runtime has confirmed that it does not list it: then the others are stopped, if that helps. Another runtime's small pod
// costs no listing: a leak uses up the rest of the memory in that time.
func TestHardMemoryListsOnlyForALargerUnlistedCgroup(t *testing.T) {
	for usage, want := range map[int64]int{testMiB: 0, 100 * testGiB: 1} {
		g, n := newManager(t, softAndHard)
		n.foreign, n.pods = usage, []inventory.Pod{testPod("a", 4*testGiB), testPod("b", 4*testGiB)}
		for i := range 2 {
			n.leak(n.pods[0].ID, testGiB/2)
			p := n.at(g, time.Duration(i)*100*time.Millisecond)
			if (p.Stop != nil) != (usage == testMiB || i > 0) {
				t.Errorf("beside one of %d: stopped %+v, held by %q", usage, p.Stop, p.Held)
			}
			if p.Stop == nil {
				continue
			}
			n.end(n.stops[len(n.stops)-1])
			n.pods = slices.DeleteFunc(n.pods, func(pod inventory.Pod) bool { return pod.ID == p.Stop.Sandbox })
			n.set(policy.MemoryAvailable, 8*testGiB)
			n.at(g, time.Duration(i)*100*time.Millisecond)
		}
		if n.listed != want {
			t.Errorf("beside one of %d: listed %d times, want %d", usage, n.listed, want)
		}
	}
}

// A pod that has just started may be the culprit although it uses less than the pod that ranks first.
func TestUnlistedPodIsTheCulprit(t *testing.T) {
	for use, want := range map[int64]string{500 * testMiB: "d/new", 100 * testMiB: "d/big"} {
		g, n := newManager(t, memoryHard)
		n.set(policy.MemoryAvailable, testGiB+300*testMiB)
		n.at(g, 0)
		n.now += 900 * time.Millisecond
		n.appear("new", "new", use)
		n.hidden, n.pods = n.pods[2:], n.pods[:2:2]
		for i := range n.pods { // the others have taken the rest of 600 MiB
			n.pods[i].Memory.Value += (600*testMiB - use) / 2
		}
		n.set(policy.MemoryAvailable, testGiB-300*testMiB)
		p := n.at(g, time.Second)
		if wantStop(t, p, want); (n.listed == 1) != (want == "d/new") {
			t.Errorf("one that uses %d MiB: listed %d times", use/testMiB, n.listed)
		}
	}
}

// A pod that cannot be listed now may be the cause, so no pod that uses less is stopped in its place.
func TestPassUnlisted(t *testing.T) {
	for usage, want := range map[int64]string{6 * testGiB: "", testGiB: "d/big"} {
		g, n := newManager(t, softAndHard)
		n.hidden, n.down = []inventory.Pod{testPod("new", usage)}, true
		n.set(policy.MemoryAvailable, testGiB/2)
		p := n.at(g, 0)
		if want == "" {
			if p.Stop != nil || p.Held != api.HeldUnlisted {
				t.Errorf("while one runs that uses more: stopped %+v, held by %q", p.Stop, p.Held)
			}
			n.down = false
			if p := n.at(g, time.Second); p.Stop == nil || p.Stop.Pod != "d/new" {
				t.Errorf("listed again: stopped %+v, want d/new", p.Stop)
			}
		} else if p.Stop == nil || p.Stop.Pod != want {
			t.Errorf("while one runs that uses less: stopped %+v, want %s", p.Stop, want)
		}
	}
}

// Soft memory and PIDs list whenever a pod may be unlisted, because there is time for it.
func TestOthersListForAnyUnlistedPod(t *testing.T) {
	for name, press := range map[string]func(*fakeNode){
		"soft memory": func(n *fakeNode) { n.set(policy.MemoryAvailable, testGiB) },
		"hard memory": func(n *fakeNode) { n.set(policy.MemoryAvailable, testGiB/4) },
	} {
		g, n := newManager(t, "[eviction.hard]\n\"memory.available\" = \"512Mi\"\n[eviction.soft]\n\"memory.available\" = \"2Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"0s\"\n")
		n.foreign = testMiB
		press(n)
		wantStop(t, n.at(g, 0), "d/big")
		if want := map[string]int{"soft memory": 1}[name]; n.listed != want {
			t.Errorf("%s: listed %d times, want %d", name, n.listed, want)
		}
	}
}

// If relief looks unattainable, the pod that is not listed may be the one that brings it.
func TestUnlistedPodIsListedWhenReliefIsNotAttainable(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.hidden, n.pods = n.pods[:1:1], n.pods[1:]
	n.pods[0].Memory = policy.Known(10 * testMiB)
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	if n.listed != 1 {
		t.Errorf("listed %d times", n.listed)
	}
}

// A culprit is stopped even if a larger pod is not listed: it is the cause, whatever else runs.
func TestCulpritDoesNotWaitForAnUnlistedPod(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.foreign, n.down = 100*testGiB, true
	n.at(g, 0)
	n.leak("small", testGiB/2)
	wantStop(t, n.at(g, time.Second), "d/small")
}

// The pass that decides reads the pods again, and no listing is needed for that.
func TestPassThatDecidesReadsThePodsAgain(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.at(g, 0)
	before := n.measured
	n.leak("big", testGiB/2)
	if wantStop(t, n.at(g, 100*time.Millisecond), "d/big"); n.measured != before+1 || n.listed != 0 {
		t.Errorf("measured %d times, listed %d times", n.measured-before, n.listed)
	}
}

// takenUnlisted returns a node on which the memory that the only stop gave back is taken, and a pod that is not listed uses so much. One
// fruitless stop opens the breaker.
func takenUnlisted(t *testing.T, unlisted int64) (g *Manager, n *fakeNode) {
	t.Helper()
	g, n = newManager(t, memoryHard+"[budget]\nbreaker = 1\n")
	n.set(policy.MemoryAvailable, testGiB/2)
	wantStop(t, n.at(g, 0), "d/big")
	n.free(5 * testGiB)
	n.at(g, 100*time.Millisecond)
	n.at(g, 200*time.Millisecond)
	n.down, n.foreign = true, unlisted
	n.set(policy.MemoryAvailable, testGiB/2)
	return g, n
}

// The memory of a pod that is not listed yet is no growth outside the pods: no stop of before is fruitless for it. It is judged when the
// pod is listed.
func TestPodThatIsNotListedIsNoGrowth(t *testing.T) {
	g, n := takenUnlisted(t, 9*testGiB/2)
	wantHeld(t, n.at(g, time.Minute), api.HeldUnlisted)
	if open := g.restraint.Status(n.now).Breakers; len(open) > 0 {
		t.Errorf("the breaker of %v is open", open)
	}
	n.down, n.foreign = false, 0
	n.pods = append(n.pods, testPod("new", 9*testGiB/2))
	wantStop(t, n.at(g, time.Minute+time.Second), "d/new")
}

// A small pod that is never listed does not keep stops from being judged.
func TestStopIsJudgedBesideAnUnlistedPod(t *testing.T) {
	g, n := takenUnlisted(t, testMiB) // the rest was taken outside the pods
	wantHeld(t, n.at(g, time.Minute), api.HeldBreaker)
}
