package live_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// A service that is killed and restarted keeps its spent budget and its history, and continues the
// pass numbers.
func TestCrash(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	calm := n.pod(lab.PodSpec{Name: "calm", Containers: hog(32 * mib)})
	large := n.pod(lab.PodSpec{Name: "large", Containers: hog(128 * mib)})
	n.hogs(calm)
	n.hogs(large)
	n.configure(config{
		hard: thresholds{policy.AllocatableMemoryAvailable: bytes(n.available(policy.AllocatableMemoryAvailable) + 64*mib)},
		more: "[budget]\nhard = {burst = 1, every = \"1h\"}\n",
	})
	s := n.startWith(2)
	s.stopped("default/large")
	n.ended(large)
	budget, history := s.status().Budget, s.history()
	if budget.Hard.Left != 0 || budget.Hard.LastHour != 1 {
		t.Errorf("budget after a stop: %+v, want none left", budget)
	}
	s.Kill()

	again := n.startWith(1)
	st := again.status()
	if st.Budget.Hard.Left != 0 || st.Budget.Hard.LastHour != 1 || len(st.Budget.Workloads) != 1 {
		t.Errorf("budget after the crash: %+v, before %+v, want it kept", st.Budget, budget)
	}
	passes := again.history()
	if len(passes) < len(history) || !slices.Equal(ids(passes[:len(history)]), ids(history)) {
		t.Errorf("history after the crash: %+v, before %+v, want it kept", passes, history)
	}
	for i := 1; i < len(passes); i++ {
		if passes[i].ID <= passes[i-1].ID {
			t.Errorf("pass %d comes after pass %d", passes[i].ID, passes[i-1].ID)
		}
	}

	// Only another stop would relieve this pressure, and the budget holds it back.
	n.configure(config{
		hard: thresholds{policy.AllocatableMemoryAvailable: bytes(podsMemory - mib)},
		more: "[budget]\nhard = {burst = 1, every = \"1h\"}\n",
	})
	again.reload()
	n.until("the budget to hold a stop back", func() bool {
		st := again.status()
		return st.LastPass != nil && st.LastPass.Held == policy.HeldBudget
	})
	if stops := again.stops(); len(stops) != 1 {
		t.Errorf("%d stops, want the one before the crash", len(stops))
	}
	n.alive(calm)
}

// ids describes passes by their ID, time and effects.
func ids(passes []api.Pass) (ids []string) {
	for i := range passes {
		id := fmt.Sprintf("%d at %v: %v", passes[i].ID, passes[i].At, passes[i].Conditions)
		if stop := passes[i].Stop; stop != nil {
			id += " stopped " + stop.Pod
		}
		ids = append(ids, id)
	}
	return ids
}
