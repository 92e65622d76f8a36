package prune_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// On a terminal, pruning shows its progress; otherwise it does not.
func TestProgress(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	run := func(i int, name string, args ...string) string {
		t.Helper()
		if _, err := n.lab.ImportImage(context.Background(), lab.ImageSpec{
			Name: fmt.Sprintf("registry.local/progress-%d:1", i), ExtraBytes: mib + int64(i), RepoDigest: true,
		}); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(name, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "removed 1") {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
		return string(out)
	}
	args := n.Args("prune", "--images", "--yes")
	if out := run(1, "script", "-qec", harness.Criguard+" "+strings.Join(args, " "), "/dev/null"); !strings.Contains(out, "removing registry.local/progress-1:1") {
		t.Errorf("on a terminal: %q", out)
	}
	if out := run(2, harness.Criguard, args...); strings.Contains(out, "removing") {
		t.Errorf("off a terminal: %q", out)
	}
}
