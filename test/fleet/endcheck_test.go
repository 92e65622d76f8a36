package fleet_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// endStop is a soft stop that a guard made.
type endStop struct {
	node, zone, workload string
	at                   time.Duration // since boot
}

// endPermit is a permit in etcd's history.
type endPermit struct {
	node     string // with its suffix
	zone     string
	workload string        // its key
	at       time.Duration // since boot, when it was recorded
	used     bool
}

// endRules are the rules that stops are compared with.
type endRules struct {
	slot, interval time.Duration // of zones, and of workloads
	trickle        int           // how many stops a node that is alone may make until its local budget is in force
	away           span          // when etcd was away
}

const (
	// recordedWithin limits the delay between a permit and its record.
	recordedWithin = time.Second
	// heldAlone and localAlone are when a node that is alone may make stops at a tenth of its budget, and at all of it.
	heldAlone, localAlone = 2 * time.Minute, 15 * time.Minute
	// tokenUse is how long after the end of its time alone a node may use a token: its validity, and the second until
	// the agent is asked again.
	tokenUse = 12 * time.Second
	// returnsWithin is how long after etcd's return a node may be alone: its next contact comes within half a minute, contacts must
	// succeed for two, the next one shows it, and so must a request of the guard. The rest is for a busy machine.
	returnsWithin = 3*time.Minute + 40*time.Second
	// firstMinute does not count in the comparison with nodes without a fleet: those that report first may get a permit before
	// their zone is full.
	firstMinute = time.Minute
)

// permitsOf returns the permits in the history of all slots.
func permitsOf(events []event) []*endPermit {
	byID := map[string]*endPermit{}
	var permits []*endPermit
	for _, e := range events {
		if e.permit == "" {
			continue
		}
		p := byID[e.permit]
		if p == nil {
			p = &endPermit{node: e.node, at: e.at}
			byID[e.permit] = p
			permits = append(permits, p)
		}
		if kind, name, _ := strings.Cut(e.key, "/"); kind == "s" {
			p.zone = name
		} else {
			p.workload = name
		}
	}
	return permits
}

// check returns what breaks a rule, and how many soft stops had a permit. alone is when nodes were alone.
func (r endRules) check(stops []endStop, permits []*endPermit, alone map[string][]span) (wrong []string, permitted int) {
	for node, spans := range alone {
		for _, a := range spans {
			if a.from < r.away.from || a.to > r.away.to+returnsWithin {
				wrong = append(wrong, fmt.Sprintf("%s was alone from %s to %s, but etcd was only away from %s to %s", node, a.from, a.to, r.away.from, r.away.to))
			}
		}
	}
	slices.SortFunc(stops, func(a, b endStop) int { return cmp.Compare(a.at, b.at) })
	tokens := map[string]int{}
	for _, s := range stops {
		if p := r.permitFor(s, permits); p != nil {
			p.used = true
			permitted++
			continue
		}
		i := slices.IndexFunc(alone[s.node], func(a span) bool { return s.at >= a.from+heldAlone && s.at <= a.to+tokenUse })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("%s stopped %s at %s without a permit, and was not alone for %s", s.node, s.workload, s.at, heldAlone))
			continue
		}
		if s.at < alone[s.node][i].from+localAlone {
			if tokens[s.node]++; tokens[s.node] > r.trickle {
				wrong = append(wrong, fmt.Sprintf("%s stopped %s at %s: more than %d stops while it trickled", s.node, s.workload, s.at, r.trickle))
			}
		}
	}
	last := map[string]time.Duration{}
	for _, p := range permits {
		if !p.used {
			continue
		}
		for slot, length := range map[string]time.Duration{"zone " + p.zone: r.slot, "workload " + p.workload: r.interval} {
			if before, has := last[slot]; has && p.at-before < length-recordedWithin {
				wrong = append(wrong, fmt.Sprintf("%s: two permits within %s", slot, p.at-before))
			}
			last[slot] = p.at
		}
	}
	return wrong, permitted
}

// compare returns an error unless a fleet made fewer soft stops in a phase than the same nodes in another one without it.
func compare(without, with *endPhase) error {
	late := func(p *endPhase) (n int) {
		for _, s := range p.soft {
			if s.at >= p.begin+firstMinute {
				n++
			}
		}
		return n
	}
	if a, b := late(without), late(with); b >= a {
		return fmt.Errorf("%d soft stops after the first minute of %q, want fewer than the %d of %q", b, with.name, a, without.name)
	}
	return nil
}

// permitFor returns the permit that a stop was made with, or nil.
func (r endRules) permitFor(s endStop, permits []*endPermit) *endPermit {
	sum := sha256.Sum256([]byte(s.workload))
	key := hex.EncodeToString(sum[:])
	for _, p := range permits {
		if !p.used && p.zone == s.zone && strings.HasPrefix(p.node, s.node+"-") && p.workload == key &&
			s.at >= p.at-recordedWithin && s.at <= p.at+r.slot+recordedWithin {
			return p
		}
	}
	return nil
}

// The rules of the whole fleet's test find what breaks them.
func TestEndRules(t *testing.T) {
	t.Parallel()
	const at = time.Hour
	rules := endRules{slot: 10 * time.Second, interval: 5 * time.Minute, trickle: 1, away: span{at, at + 15*time.Minute}}
	stop := func(node, workload string, after time.Duration) endStop {
		return endStop{node, "z1", workload, at + after}
	}
	permit := func(s endStop) []event {
		sum := sha256.Sum256([]byte(s.workload))
		id := fmt.Sprint(s)
		return []event{{key: "s/z1", permit: id, node: s.node + "-abcd", at: s.at}, {key: "w/" + hex.EncodeToString(sum[:]), permit: id, node: s.node + "-abcd", at: s.at}}
	}
	a, soon, late, again := stop("n1", "a", 0), stop("n2", "b", 5*time.Second), stop("n2", "b", 11*time.Second), stop("n2", "a", time.Minute)
	for _, tt := range []struct {
		name    string
		stops   []endStop
		permits []endStop
		want    string // "" = all is well
	}{
		{"one after the other", []endStop{a, late}, []endStop{a, late}, ""},
		{"unused permit", []endStop{a}, []endStop{a, soon}, ""},
		{"no permit", []endStop{a, late}, []endStop{a}, "n2 stopped b"},
		{"another node's permit", []endStop{soon}, []endStop{stop("n1", "b", 5*time.Second)}, "n2 stopped b"},
		{"expired permit", []endStop{stop("n1", "a", 12*time.Second)}, []endStop{a}, "n1 stopped a"},
		{"one permit for two stops", []endStop{a, stop("n1", "a", time.Second)}, []endStop{a}, "n1 stopped a"},
		{"two in a slot", []endStop{a, soon}, []endStop{a, soon}, "zone z1: two permits within 5s"},
		{"two of a workload", []endStop{a, again}, []endStop{a, again}, "two permits within 1m0s"},
		{"too soon alone", []endStop{stop("alone", "a", time.Minute)}, nil, "alone stopped a"},
		{"trickle", []endStop{stop("alone", "a", 3*time.Minute)}, nil, ""},
		{"two while it trickles", []endStop{stop("alone", "a", 3*time.Minute), stop("alone", "b", 4*time.Minute)}, nil, "alone stopped b"},
		{"local", []endStop{stop("alone", "a", 16*time.Minute), stop("alone", "b", 17*time.Minute)}, nil, ""},
		{"no longer alone", []endStop{stop("alone", "a", 19*time.Minute)}, nil, "alone stopped a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var events []event
			for _, s := range tt.permits {
				events = append(events, permit(s)...)
			}
			wrong, _ := rules.check(tt.stops, permitsOf(events), map[string][]span{"alone": {{at, at + 18*time.Minute}}})
			if text := strings.Join(wrong, "\n"); (text != "") != (tt.want != "") || !strings.Contains(text, tt.want) {
				t.Errorf("got %q, want %q", text, tt.want)
			}
		})
	}
	for s, ok := range map[span]bool{
		{at, at + 18*time.Minute}:                      true,
		{at + 20*time.Second, at + 15*time.Minute}:     true,
		{at - time.Second, at + time.Minute}:           false, // etcd was not away yet
		{at + time.Minute, at + 19*time.Minute}:        false, // it was back long before
		{at + 30*time.Minute, at + 30*time.Minute + 1}: false,
	} {
		if wrong, _ := rules.check(nil, nil, map[string][]span{"n1": {s}}); (len(wrong) == 0) != ok {
			t.Errorf("alone from %s to %s: %q", s.from, s.to, wrong)
		}
	}
	phase := func(after ...time.Duration) *endPhase {
		p := &endPhase{name: "x", begin: at}
		for _, d := range after {
			p.soft = append(p.soft, stop("n1", "a", d))
		}
		return p
	}
	many, few := phase(0, 61*time.Second, 62*time.Second), phase(0, 1, 2, 3, 61*time.Second)
	if err := compare(many, few); err != nil {
		t.Error(err)
	}
	for _, same := range []*endPhase{many, few, phase()} {
		if compare(same, same) == nil {
			t.Errorf("no error for as many stops as without the fleet: %+v", same)
		}
	}
}
