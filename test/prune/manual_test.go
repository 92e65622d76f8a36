package prune_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// With the default ages, a manual prune removes no image that criguard has never seen, says so, and records the
// images; --ignore-age removes them. On a terminal it asks. The service records who pruned.
func TestManualPrune(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	n.Configure(n.lab.Config() + fmt.Sprintf(`
[eviction.hard]
"memory.available" = "0%%"
"nodefs.available" = "0%%"
"nodefs.inodesFree" = "0%%"
"imagefs.available" = "0%%"
"imagefs.inodesFree" = "0%%"
"pid.available" = "0%%"
[images]
hold_after_runtime_restart = "0s"
[history]
dir = %q
`, n.Dir))
	run := func(code int, text string, args ...string) {
		t.Helper()
		if a := n.Run(n.Args(args...)...); a.Code != code || !strings.Contains(a.Out+a.Err, text) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s%s", args, a.Code, code, text, a.Out, a.Err)
		}
	}
	imported := func(i int) string {
		t.Helper()
		name := fmt.Sprintf("registry.local/manual-%d:1", i)
		if _, err := n.lab.ImportImage(context.Background(), lab.ImageSpec{Name: name, ExtraBytes: mib, RepoDigest: true}); err != nil {
			t.Fatal(err)
		}
		return name
	}
	ageUnknown := func(name string) bool {
		t.Helper()
		for _, v := range harness.Ask[reclaim.ImageList](n.Node, "images").Verdicts {
			if v.Name == name {
				return v.AgeUnknown
			}
		}
		t.Fatalf("no image %s", name)
		return false
	}
	first := imported(1)
	run(0, "ages unknown: ", "images")
	if !ageUnknown(first) {
		t.Error("without a ledger, the age is known")
	}
	run(0, "removed 0, ", "prune", "--images")
	n.Within(harness.Patience, "the image to have an age", func() bool { return !ageUnknown(first) })
	run(1, "--until imagefs.available=100% is not reached", "prune", "--images", "--until", "imagefs.available=100%")
	if a := harness.OnTerminal(t, "n\n", n.Args("prune", "--images", "--ignore-age")...); a.Code != 1 ||
		!strings.Contains(a.Out, first) || !strings.Contains(a.Out, "Remove 1 image? [y/N]") || !strings.Contains(a.Out, "nothing was removed") {
		t.Errorf("not confirmed: exit code %d: %s", a.Code, a.Out)
	}
	run(0, "removed 1, ", "prune", "--images", "--ignore-age")

	second := imported(2)
	client := n.Client()
	n.Start()
	n.Within(harness.Patience, "the service to know the image's age", func() bool {
		st, err := client.Status(context.Background())
		return err == nil && st.Runtime.Up && !ageUnknown(second)
	})
	out := harness.Ask[struct {
		Freed int64 `json:"freed"`
	}](n.Node, "prune", "--images", "--ignore-age")
	if out.Freed < mib {
		t.Errorf("freed %d bytes", out.Freed)
	}
	n.Within(harness.Patience, "the prune to be in the history", func() bool {
		passes, err := client.History(context.Background(), 0)
		for _, p := range passes {
			if c := p.Command; c != nil && c.Command == api.CommandPrune && c.By.UID == 0 && len(p.Reclaimed) == 1 && p.Reclaimed[0].Removed() == 1 {
				return err == nil && p.Reclaimed[0].Freed >= mib
			}
		}
		return false
	})
	run(0, "prune by root", "history")
}
