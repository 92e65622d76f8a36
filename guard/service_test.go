package guard

import (
	"log/slog"
	"strings"
	"testing"
	"time"

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

// An alarm lasts as long as the breaker is open and the signal met, over a restart, too.
func TestStatusShowsAnOpenBreaker(t *testing.T) {
	s := effectService(t, goodConfig(t, effectNode(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'")))
	for range 3 {
		s.guard.restraint.Judge(policy.MemoryAvailable, false)
	}
	s.saveBudget()
	g, n := newPassGuard(t, softAndHard)
	g = New(g.cfg, n, n, n, n, s.loadBudget())
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 0); p.Held != HeldBreaker {
		t.Fatalf("held by %q", p.Held)
	}
	if got := g.status(s.node).Alarms; len(got) != 1 || !strings.HasPrefix(got[0], "memory.available: ") {
		t.Errorf("alarms %q", got)
	}
	n.set(policy.MemoryAvailable, 8*testGiB)
	n.at(g, time.Second)
	if got := g.status(s.node).Alarms; len(got) != 0 {
		t.Errorf("alarms %q without pressure", got)
	}
}

// A stop that is held back is told of once by all that tell of it, however often the signal
// crosses its threshold before the condition ends; and again when something else holds it back.
func TestServiceTellsOfAHoldOnce(t *testing.T) {
	s := effectService(t, goodConfig(t, effectNode(t, "runtime.endpoint = '/none'\nhistory.dir = '"+t.TempDir()+"'")))
	var text strings.Builder
	s.journal = NewJournal(slog.New(slog.NewTextHandler(&text, nil)))
	g, n := newDiskGuard(t)
	s.guard = g
	for i := range n.pods {
		n.pods[i].Protection = "test"
	}
	at := time.Duration(0)
	pass := func(held string) {
		t.Helper()
		at += time.Second
		p := n.at(g, at)
		if s.after(&p); p.Held != held {
			t.Fatalf("held by %q, want %q", p.Held, held)
		}
	}
	for i := range 10 {
		n.set(policy.NodeFSAvailable, 0)
		pass(HeldReclaiming)
		close(n.reliefs[i].done)
		pass(HeldProtected)
		n.set(policy.NodeFSAvailable, 2*testGiB)
		pass("")
	}
	records := s.history.Last(0)
	if len(records) != 2 || records[0].Held != HeldReclaiming || records[1].Held != HeldProtected || records[1].ID != records[0].ID+1 {
		t.Errorf("%d records", len(records))
	}
	if got := strings.Count(text.String(), "stop held back"); got != 1 {
		t.Errorf("%d lines in the journal", got)
	}
	wantMetrics(t, s.metrics, map[string]string{`held_total{reason="protected"}`: "1"})
	n.set(policy.NodeFSAvailable, 0)
	pass(HeldReclaiming)
	if got := s.statusLine(); !strings.HasSuffix(got, "held back: protected") {
		t.Errorf("status line %q", got)
	}
	if st := s.status(); st.Held != HeldProtected || !strings.HasPrefix(st.HeldBy, "nodefs.available") {
		t.Errorf("status: %q held back by %q", st.HeldBy, st.Held)
	}
	close(n.reliefs[10].done)
	n.pods = nil
	pass(HeldNoCandidate)
	if got := len(s.history.Last(0)); got != 3 {
		t.Errorf("%d records with another reason", got)
	}
	wantMetrics(t, s.metrics, map[string]string{`held_total{reason="no candidate"}`: "1"})
}
