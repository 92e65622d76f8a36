package etcd

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestNodeName(t *testing.T) {
	const id, other = "0123456789abcdef0123456789abcdef\n", "fedcba9876543210fedcba9876543210"
	valid := regexp.MustCompile(`^[a-z0-9.-]+-[0-9a-f]{12}$`)
	names := map[string]bool{}
	for _, name := range []string{"node1", "Node_1.Example.Com", "", "a/b", "ü", strings.Repeat("x", 300)} {
		for _, machine := range []string{id, other} {
			got, err := nodeName("n"+name, machine)
			if err != nil || !valid.MatchString(got) || len(got) > 253 {
				t.Errorf("%q: %q, %v", name, got, err)
			}
			if strings.Contains(got, machine[:12]) {
				t.Errorf("%q shows the machine ID", got)
			}
			names[got] = true
		}
	}
	if len(names) != 12 {
		t.Errorf("12 nodes have %d names", len(names))
	}
	path := filepath.Join(t.TempDir(), "machine-id")
	if err := os.WriteFile(path, []byte(id), 0o600); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	given, err := NodeName(host, path)
	if got, err2 := NodeName("", path); err != nil || err2 != nil || got != given {
		t.Errorf("%q of the host, %q by name (%v, %v)", got, given, err, err2)
	}
	for _, bad := range []string{"", "uninitialized", "0123", id[:30] + "zz"} {
		if got, err := nodeName("n", bad); err == nil {
			t.Errorf("machine ID %q: %s", bad, got)
		}
	}
	if _, err := NodeName("n", filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a name without a machine ID")
	}
}
