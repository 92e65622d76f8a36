package guard

import (
	"testing"

	"github.com/criguard/criguard/policy"
)

// A breaker that closes while nothing is stopped is closed after a restart, too.
func TestServiceSavesAClosedBreaker(t *testing.T) {
	s := effectService(t, goodConfig(t, effectNode(t, "runtime.endpoint = '/none'")+"eviction.hard.'memory.available' = '1'\n"))
	for range 3 {
		s.guard.restraint.Judge(policy.MemoryAvailable, false)
	}
	s.saveBudget()
	if !s.loadBudget().Cleared(policy.MemoryAvailable) {
		t.Fatal("an open breaker is not saved")
	}
	p := s.guard.Pass(t.Context(), "test")
	if s.after(&p); p.Notable() || s.loadBudget().Cleared(policy.MemoryAvailable) {
		t.Errorf("open after a restart; the pass is notable: %v", p.Notable())
	}
}
