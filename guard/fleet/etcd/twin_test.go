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
