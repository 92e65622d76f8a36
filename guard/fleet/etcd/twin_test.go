package etcd

import (
	"testing"
	"time"
)

// Two nodes that report under one name notice each other. An agent that follows another one on its node does not, nor does one
// whose neighbour is too old to mark its reports.
func TestNameTaken(t *testing.T) {
	m := newMemory()
	a, b := m.client(t, "n1"), m.client(t, "n1")
	taken := func(c *Client) bool {
		t.Helper()
		must(t, c.Report(t.Context(), State{Digest: "d1", Version: "v1"}))
		s, err := c.Survey(t.Context(), c.opt.Rates)
		must(t, err)
		return s.NameTaken
	}
	for range 3 {
		if taken(a) {
			t.Fatal("taken by itself")
		}
	}
	if taken(b) {
		t.Error("the second agent may be the first one after a restart")
	}
	if !taken(a) || !taken(b) {
		t.Error("two agents of one name are not noticed")
	}
	// b gets another name: a is alone under this one.
	m.now += time.Minute
	if taken(a); !taken(a) {
		t.Error("forgotten at once: the other node reports once an hour")
	}
	m.now += MemberTTL
	if taken(a) {
		t.Error("not forgotten")
	}
	m.keys[a.keys.member("z", "n1")].Value = []byte(`{"digest":"d1","version":"v0"}`)
	if taken(a) {
		t.Error("an agent without a mark took the name")
	}
}

// An etcd that was restored has the report of the node's earlier agent in the place of this one's. That is no other node.
func TestNameNotTakenByAnEarlierAgent(t *testing.T) {
	for away, calls := range map[time.Duration]int{0: 3, 2 * time.Hour: 1} { // to read, and to let the fleet settle
		for _, fails := range []bool{false, true} { // the first report after the restore, after these calls
			m := newMemory()
			wish := State{Digest: "d1"}
			earlier := m.client(t, "n1")
			must(t, earlier.Report(t.Context(), wish))
			m.now += SettlingTTL
			must(t, earlier.Report(t.Context(), wish)) // the fleet no longer settles
			before := m.snapshot()
			c := m.client(t, "n1")
			must(t, c.Report(t.Context(), wish))
			m.now += away
			m.restore(before)
			if fails {
				left := calls
				m.interrupt = func(done bool) error {
					if done {
						left--
					} else if left == 0 {
						return errBroken
					}
					return nil
				}
				if err := c.Report(t.Context(), wish); err == nil {
					t.Fatal("the report did not fail")
				}
				m.interrupt = nil
			}
			must(t, c.Report(t.Context(), wish))
			if s, err := c.Survey(t.Context(), c.opt.Rates); err != nil || s.NameTaken {
				t.Errorf("away for %s, fails: %t: name taken: %t, %v", away, fails, s.NameTaken, err)
			}
			must(t, m.client(t, "n1").Report(t.Context(), wish)) // another node
			must(t, c.Report(t.Context(), wish))
			if s, err := c.Survey(t.Context(), c.opt.Rates); err != nil || !s.NameTaken {
				t.Errorf("away for %s, fails: %t: another node is not noticed, %v", away, fails, err)
			}
		}
	}
}
