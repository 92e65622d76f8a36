package main

import (
	"maps"
	"os"
	"path/filepath"
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

// docs/troubleshooting.md explains every reason that can hold a stop back, and has a remedy for it.
func TestTroubleshootingExplainsHeld(t *testing.T) {
	text := read(t, "../../docs/troubleshooting.md")
	for _, held := range []string{
		api.HeldGrace, api.HeldReclaiming, api.HeldInFlight, api.HeldObserve, api.HeldStallFloor, api.HeldUnlisted, api.HeldAsking, api.HeldFleet, api.HeldBudget,
		api.HeldBackoff, api.HeldBreaker, api.HeldProtected, api.HeldOutside, api.HeldUnknown, api.HeldPaused, api.HeldRecovers,
	} {
		if !regexp.MustCompile("(?m)^\\| `" + held + "` \\| \\S.* \\| \\S").MatchString(text) {
			t.Errorf("docs/troubleshooting.md has no row for %q", held)
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

// criguard(1) says of the same commands as their help what exit code 1 means, in the same words, and names each
// reason for exit code 3.
func TestManPageExitStatus(t *testing.T) {
	man := strings.ReplaceAll(read(t, "../../systemd/criguard.1"), `\-`, "-")
	_, section, _ := strings.Cut(man, "\n.SH EXIT STATUS\n")
	section, _, _ = strings.Cut(section, "\n.SH ")
	byCode := map[string]string{}
	for _, part := range strings.Split(section, ".TP\n.B ")[1:] {
		code, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "\n.PP")
		byCode[code] = text
	}
	got, want := map[string]string{}, map[string]string{}
	for _, part := range strings.Split(byCode["1"], "\n.BR ")[1:] {
		name, text, _ := strings.Cut(part, " :\n")
		got[strings.Trim(name, `"`)] = strings.TrimSuffix(strings.Join(strings.Fields(strings.ReplaceAll(text, "\n.B ", "\n")), " "), ".")
	}
	reasons := map[string]bool{}
	for name, c := range exitCodes {
		if c.finding != "" {
			want[name] = c.finding
		}
		for _, who := range []string{"runtime", "service", "history file", "etcd"} {
			if strings.Contains(c.unreachable, who) {
				reasons[who] = true
			}
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("exit code 1: got %q, want %q", got, want)
	}
	for who := range reasons {
		if !strings.Contains(byCode["3"], who) {
			t.Errorf("exit code 3 does not mention the %s: %s", who, byCode["3"])
		}
	}
	if len(byCode) != 4 || len(reasons) != 4 {
		t.Errorf("exit codes %q, reasons %v", byCode, reasons)
	}
}

// Every command that a sentence of a document names has the flags and arguments that it wants.
func TestDocsCommandsAreGood(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	span, found := regexp.MustCompile("`criguard ([^`|&;<>'\"]+)`"), 0
	for _, file := range append(files, "../../README.md", "../../CONTRIBUTING.md") {
		for i, line := range strings.Split(read(t, file), "\n") {
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				cmd, args, err := newRoot().Find(strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(m[1])))
				if err == nil {
					err = cmd.ParseFlags(args)
				}
				if err == nil && cmd.Args != nil {
					err = cmd.Args(cmd, cmd.Flags().Args())
				}
				if found++; err != nil {
					t.Errorf("%s:%d: %s: %v", file, i+1, m[0], err)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("found %d commands", found)
	}
}
