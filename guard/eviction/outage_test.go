package eviction

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
)

// A pass records when the runtime becomes unavailable and when it is available again, once each.
func TestOutageIsRecorded(t *testing.T) {
	g, n := newManager(t, memoryHard)
	look := func(at time.Duration, down bool) *api.RuntimeChange {
		t.Helper()
		n.down = down
		p := n.at(g, at)
		if p.Notable() != (p.Runtime != nil) || p.Notable() != (p.ID > 0) || p.Notable() != (len(p.Signals) > 0) {
			t.Errorf("at %s: notable %t, pass %d with %d signals", at, p.Notable(), p.ID, len(p.Signals))
		}
		return p.Runtime
	}
	for _, c := range []struct {
		at   time.Duration
		down bool
		want string
	}{
		{0, true, "null"}, // a service that starts has not listed yet
		{time.Second, false, "null"},
		{6 * time.Second, true, `{"up":false,"error":"no container runtime answers"}`},
		{7 * time.Second, true, "null"},
		{8 * time.Second, false, `{"up":true,"for":"2s"}`},
		{9 * time.Second, false, "null"},
		{10 * time.Second, true, "null"}, // a second outage within a minute
		{11 * time.Second, false, "null"},
		{60 * time.Second, true, "null"}, // a third one, which lasts
		{68 * time.Second, true, `{"up":false,"error":"no container runtime answers","for":"8s"}`},
		{time.Hour, true, "null"},
		{time.Hour + time.Second, false, `{"up":true,"for":"59m1s"}`},
	} {
		got, err := json.Marshal(look(c.at, c.down))
		if err != nil || string(got) != c.want {
			t.Errorf("at %s, down %t: %s, %v, want %s", c.at, c.down, got, err, c.want)
		}
	}
}

// A runtime that never answers is recorded as well.
func TestOutageFromTheStart(t *testing.T) {
	g, n := newManager(t, memoryHard)
	n.down = true
	if p := n.at(g, 0); p.Runtime != nil {
		t.Errorf("before the first listing: %+v", p.Runtime)
	}
	if p := n.at(g, firstListing); p.Runtime == nil || p.Runtime.Up || time.Duration(p.Runtime.For) != firstListing {
		t.Errorf("after it: %+v", p.Runtime)
	}
}

// The next run of the service records the end of an outage that an earlier one recorded, and not its begin again.
func TestOutageOverARestart(t *testing.T) {
	for _, down := range []bool{false, true} {
		g, n := newManager(t, memoryHard)
		g.Continue(41, true, 0)
		if n.down = down; down {
			for _, at := range []time.Duration{0, time.Minute} {
				if p := n.at(g, at); p.Runtime != nil {
					t.Errorf("still down at %s: %+v", at, p.Runtime)
				}
			}
			n.down = false
		}
		if p := n.at(g, 2*time.Minute); p.Runtime == nil || *p.Runtime != (api.RuntimeChange{Up: true}) || p.ID != 42 {
			t.Errorf("available, before that down %t: pass %d, %+v", down, p.ID, p.Runtime)
		}
	}
}
