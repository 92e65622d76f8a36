package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	pod := func(id string, frees int64) Ranked {
		return Ranked{Candidate: Candidate{ID: id}, Known: true, Frees: frees}
	}
	unknown := Ranked{Candidate: Candidate{ID: "unknown"}}
	protected := func(frees int64, known bool) Ranked {
		r := Ranked{Candidate: Candidate{ID: "protected", Protection: "static pod"}, Known: known, Frees: frees}
		r.Excluded = r.Protection
		return r
	}
	none := Ranked{Candidate: Candidate{ID: "none"}, Known: true, Excluded: ExcludedUsesNone}
	held, passed, returned := Standing{Held: HeldBackoff}, Standing{Passed: true}, Standing{Returned: true}
	back, cause := Standing{Held: HeldBackoff, Returned: true}, Standing{Cause: true}
	for _, v := range []struct {
		name      string
		ranked    []Ranked
		standings map[string]Standing
		victim    string
		held      string
	}{
		{"the first", []Ranked{pod("a", 100), pod("b", 900)}, nil, "a", ""},
		{"nobody", nil, nil, "", HeldNoCandidate},
		{"nobody can help", []Ranked{none}, nil, "", HeldNoCandidate},
		{"only the protected would help", []Ranked{none, protected(5, true)}, nil, "", HeldProtected},
		{"the protected may help", []Ranked{none, protected(0, false)}, nil, "", HeldProtected},
		{"the protected would not help", []Ranked{none, protected(0, true)}, nil, "", HeldNoCandidate},
		{"the first held clears it: wait", []Ranked{pod("a", 500), pod("b", 900)}, map[string]Standing{"a": held}, "", HeldBackoff},
		{"the first held does not clear it", []Ranked{pod("a", 499), pod("b", 10)}, map[string]Standing{"a": held}, "b", ""},
		{"nor the second", []Ranked{pod("a", 499), pod("b", 10), pod("c", 1)}, map[string]Standing{"a": held, "b": held}, "c", ""},
		{"the second held clears it: wait", []Ranked{pod("a", 499), pod("b", 500), pod("c", 1)}, map[string]Standing{"a": held, "b": held}, "", HeldBackoff},
		{"all held", []Ranked{pod("a", 1), pod("b", 2)}, map[string]Standing{"a": held, "b": held}, "", HeldBackoff},
		{"held, of unknown size: wait", []Ranked{unknown, pod("b", 2)}, map[string]Standing{"unknown": held}, "", HeldBackoff},
		{"not passed over for the unknown", []Ranked{pod("a", 1), unknown}, map[string]Standing{"a": held}, "", HeldBackoff},
		{"the unknown, where there is nobody else", []Ranked{unknown}, nil, "unknown", ""},
		{"the first stopped in vain", []Ranked{pod("a", 900), pod("b", 1)}, map[string]Standing{"a": passed}, "b", ""},
		{"all stopped in vain", []Ranked{pod("a", 900)}, map[string]Standing{"a": passed}, "", HeldNoCandidate},
		{"hold-down", []Ranked{pod("a", 900), pod("b", 1), pod("c", 2)}, map[string]Standing{"b": returned, "c": returned}, "b", ""},
		{"hold-down of the unknown", []Ranked{pod("a", 900), unknown}, map[string]Standing{"unknown": returned}, "a", ""},
		{"hold-down of the excluded", []Ranked{pod("a", 900), none}, map[string]Standing{"none": returned}, "a", ""},
		{"hold-down of the protected", []Ranked{pod("a", 900), protected(5, true)}, map[string]Standing{"protected": returned}, "a", ""},
		{"back and held, clears it: wait", []Ranked{pod("a", 900), pod("b", 500)}, map[string]Standing{"b": back}, "", HeldBackoff},
		{"back and held, but another is the cause", []Ranked{pod("a", 900), pod("c", 700), pod("b", 500)}, map[string]Standing{"b": back, "c": cause}, "c", ""},
		{"the first held, but another is the cause", []Ranked{pod("a", 500), pod("b", 900)}, map[string]Standing{"a": held, "b": cause}, "b", ""},
		{"the cause is back and held", []Ranked{pod("a", 900), pod("b", 500)}, map[string]Standing{"b": {Held: HeldBackoff, Returned: true, Cause: true}}, "", HeldBackoff},
		{"the cause was stopped in vain", []Ranked{pod("a", 900), pod("b", 500)}, map[string]Standing{"a": held, "b": {Passed: true, Cause: true}}, "", HeldBackoff},
		{"back and held, does not clear it", []Ranked{pod("a", 900), pod("b", 499)}, map[string]Standing{"b": back}, "a", ""},
		{"back, stopped in vain", []Ranked{pod("a", 900), pod("b", 499)}, map[string]Standing{"b": {Returned: true, Passed: true}}, "a", ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			victim, reason := Choose(v.ranked, 500, func(c *Ranked) Standing { return v.standings[c.ID] })
			got := ""
			if victim != nil {
				got = victim.ID
			}
			if got != v.victim || reason != v.held {
				t.Errorf("chose %q, held by %q; want %q, %q", got, reason, v.victim, v.held)
			}
		})
	}
}

// TestChooseProperties: whatever the pods and whatever restrains them, nobody is
// chosen who is protected, held, passed over or of no use; there is either a
// victim or a reason; and the order of the pods plays no part.
func TestChooseProperties(t *testing.T) {
	r := source(8)
	for range 10_000 {
		cs := randomPods(r, r.IntN(12))
		s, l, deficit := Signal(r.IntN(int(SignalCount))), Layout(r.IntN(3)), r.Int64N(10)
		standings := map[string]Standing{}
		for _, c := range cs {
			standings[c.ID] = Standing{Passed: r.IntN(6) == 0, Held: pick(r, "", "", HeldBackoff), Returned: r.IntN(5) == 0, Cause: r.IntN(9) == 0}
		}
		standing := func(c *Ranked) Standing { return standings[c.ID] }
		ranked := Rank(cs, s, l, nil, deficit)
		victim, held := Choose(ranked, deficit, standing)
		if (victim == nil) != (held != "") {
			t.Fatalf("victim %v, held by %q", victim, held)
		}
		if held == HeldProtected && !slices.ContainsFunc(cs, func(c Candidate) bool { return c.Protection != "" }) {
			t.Fatal("held by a protection that nobody has")
		}
		if victim != nil {
			st := standings[victim.ID]
			if victim.Protection != "" || victim.Excluded != "" || st.Held != "" || st.Passed || victim.Known && victim.Frees <= 0 {
				t.Fatalf("chose %+v, which stands as %+v", victim, st)
			}
			for _, before := range ranked[:victim.Position-1] {
				b := standings[before.ID]
				if !b.Passed && !(st.Returned && victim.Known) && !st.Cause && (b.Held == "" || !before.Known || before.Frees >= deficit) {
					t.Fatalf("chose %s before %+v, which stands as %+v", victim.ID, before, b)
				}
			}
		}
		r.Shuffle(len(cs), func(i, j int) { cs[i], cs[j] = cs[j], cs[i] })
		again, reason := Choose(Rank(cs, s, l, nil, deficit), deficit, standing)
		if reason != held || (again == nil) != (victim == nil) || again != nil && again.ID != victim.ID {
			t.Fatalf("in another order: %v, %q", again, reason)
		}
	}
}

// TestProtectedNeverChosen drives the whole decision with every pod protected but
// one, or all of them.
func TestProtectedNeverChosen(t *testing.T) {
	r := source(9)
	for range 10_000 {
		cs := randomPods(r, 1+r.IntN(10))
		free := r.IntN(len(cs) + 1)
		for i := range cs {
			cs[i].Protection = "protect rule " + strings.Repeat("I", i+1)
			if i == free {
				cs[i].Protection = ""
			}
		}
		standing := func(*Ranked) Standing { return Standing{Returned: r.IntN(2) == 0} }
		for _, s := range Signals() {
			victim, held := Choose(Rank(cs, s, Layout(r.IntN(3)), randomKeys(r), r.Int64N(400)), 1, standing)
			if victim != nil && (free == len(cs) || victim.ID != cs[free].ID) {
				t.Fatalf("%s: chose the protected %s", s, victim.ID)
			}
			if victim == nil && held != HeldProtected && held != HeldNoCandidate {
				t.Fatalf("%s: held by %q", s, held)
			}
		}
	}
}
