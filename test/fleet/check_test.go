package fleet_test

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/criguard/criguard/test/etcdtest"
)

// The check of the permissions names each key that is missing, and writes nothing.
func TestCheckPermissions(t *testing.T) {
	t.Parallel()
	each(t, testCheckPermissions)
}

func testCheckPermissions(t *testing.T, c *etcdtest.Cluster) {
	c.EnableRoles(t, map[string]etcdtest.Grants{
		"node": {Read: []string{prefix}, Write: []string{prefix + "settling", prefix + "w/", prefix + "s/z1", prefix + "m/z1/", prefix + "u/z1/"}},
		"half": {Read: []string{prefix}, Write: []string{prefix + "settling", prefix + "w/", prefix + "m/z1/", prefix + "u/z1/"}},
		"boss": {Read: []string{prefix}, Write: []string{prefix + "policy/", prefix + "m/", prefix + "u/"}},
		"heir": {Read: []string{prefix}, Write: []string{prefix + "policy/"}},
	})
	before := revision(t, c)
	for _, tt := range []struct {
		user, zone     string
		node, operator []string // the keys that the user may not write
	}{
		{"node", "z1", nil, []string{"policy/pause", "policy/rates"}},
		{"node", "z2", []string{"m/z2/n1", "u/z2/n1", "s/z2"}, []string{"policy/pause", "policy/rates", "m/z2/n1", "u/z2/n1"}},
		{"half", "z1", []string{"s/z1"}, []string{"policy/pause", "policy/rates"}},
		{"boss", "z1", []string{"s/z1", "w/", "settling"}, nil},
		{"heir", "z1", []string{"m/z1/n1", "u/z1/n1", "s/z1", "w/", "settling"}, []string{"m/z1/n1", "u/z1/n1"}},
	} {
		o := options(c, tt.zone, "n1")
		o.TLS = c.Issue(t, tt.user)
		n := client(t, o)
		for name, check := range map[string]struct {
			err  error
			want []string
		}{"node": {n.CheckNode(t.Context()), tt.node}, "operator": {n.CheckOperator(t.Context()), tt.operator}} {
			text := ""
			if check.err != nil {
				text = check.err.Error()
			}
			if got := strings.Count(text, "etcd denied permission"); got != len(check.want) {
				t.Errorf("%s in %s as %s: %d keys are denied, want %v: %s", tt.user, tt.zone, name, got, check.want, text)
			}
			for _, key := range check.want {
				if !strings.Contains(text, "write "+prefix+key) {
					t.Errorf("%s in %s as %s: no error names %s: %s", tt.user, tt.zone, name, key, text)
				}
			}
		}
	}
	if after := revision(t, c); after != before {
		t.Errorf("the check made %d writes", after-before)
	}
}

// An etcd that was ever compacted shows it.
func TestInspectHistory(t *testing.T) {
	t.Parallel()
	each(t, testInspectHistory)
}

func testInspectHistory(t *testing.T, c *etcdtest.Cluster) {
	n := member(t, options(c, "z1", "n1"))
	s, err := n.Inspect(t.Context())
	if err != nil || s.Compacted || s.Revision != revision(t, c) {
		t.Errorf("%+v, %v", s, err)
	}
	_, err = pb.NewKVClient(c.Conn()).Compact(t.Context(), &pb.CompactionRequest{Revision: s.Revision})
	must(t, err)
	if s, err = n.Inspect(t.Context()); err != nil || !s.Compacted {
		t.Errorf("after a compaction: %+v, %v", s, err)
	}
}
