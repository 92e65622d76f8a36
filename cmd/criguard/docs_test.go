package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/criguard/criguard/guard/api"
)

// The README and the man page name every command. The man page also names every flag.
func TestDocsNameEveryCommand(t *testing.T) {
	readme := read(t, "../../README.md")
	man := strings.ReplaceAll(read(t, "../../systemd/criguard.1"), `\-`, "-")
	for _, cmd := range newRoot().Commands() {
		name := cmd.Name()
		if name == "help" {
			continue
		}
		if !strings.Contains(man, ".B "+name) {
			t.Errorf("the man page does not name %q", name)
		}
		if name != "version" && name != "completion" && !strings.Contains(readme, "criguard "+name) {
			t.Errorf("README.md does not name %q", name)
		}
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && name != "completion" &&
				!strings.Contains(man, "--"+f.Name) && (f.Shorthand == "" || !strings.Contains(man, "-"+f.Shorthand)) {
				t.Errorf("the man page does not name %s --%s", name, f.Name)
			}
		})
	}
}

// docs/tuning.md has a remedy for every reason that can hold a stop back.
func TestTuningExplainsHeld(t *testing.T) {
	tuning := read(t, "../../docs/tuning.md")
	for _, held := range []string{
		api.HeldGrace, api.HeldReclaiming, api.HeldInFlight, api.HeldObserve, api.HeldStallFloor, api.HeldUnlisted, api.HeldAsking, api.HeldFleet, api.HeldBudget,
		api.HeldBackoff, api.HeldBreaker, api.HeldProtected, api.HeldOutside, api.HeldUnknown, api.HeldPaused,
	} {
		if !regexp.MustCompile("(?m)^\\| held back by .*`" + held + "`.* \\| \\S").MatchString(tuning) {
			t.Errorf("docs/tuning.md has no row for %q", held)
		}
	}
}

// Every command and every flag has a help text.
func TestEveryCommandHasHelp(t *testing.T) {
	root := newRoot()
	for _, cmd := range append(root.Commands(), root) {
		if cmd.Short == "" {
			t.Errorf("%s has no short help", cmd.Name())
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no help", cmd.Name(), f.Name)
			}
		})
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// CONTRIBUTING.md leads through the code by functions that exist.
func TestContributingPathsExist(t *testing.T) {
	steps := regexp.MustCompile("`([a-z/]+\\.go)`: `(\\w+)`").FindAllStringSubmatch(read(t, "../../CONTRIBUTING.md"), -1)
	if len(steps) < 20 {
		t.Fatalf("found %d steps", len(steps))
	}
	for _, step := range steps {
		if !regexp.MustCompile(`(?m)^func (\(.*\) )?` + step[2] + `[(\[]`).MatchString(read(t, "../../"+step[1])) {
			t.Errorf("%s has no function %s", step[1], step[2])
		}
	}
}
