package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/criguard/criguard/guard/rundir"
)

// The state of every command and of the service follows --run-dir.
func TestLoadSetsRunDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte("# the defaults\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("RUNTIME_DIRECTORY", "")
	for named, want := range map[string]rundir.Dir{"": rundir.Default, "/run/other": "/run/other"} {
		o := &options{config: path, runDir: named}
		if cfg, err := o.load(); err != nil || cfg.Dir != want || cfg.History.Dir != "" {
			t.Errorf("--run-dir %q: run directory %q, history.dir %q, %v", named, cfg.Dir, cfg.History.Dir, err)
		}
	}
}

// The short flag -n means a dry run, in every command.
func TestShortFlags(t *testing.T) {
	dry := 0
	for _, cmd := range everyCommand(newRoot()) {
		if f := cmd.Flags().ShorthandLookup("n"); f != nil && f.Name != "dry-run" {
			t.Errorf("%s: -n is --%s", cmd.CommandPath(), f.Name)
		}
		if f := cmd.Flags().Lookup("dry-run"); f != nil && f.Shorthand == "n" {
			dry++
		}
	}
	if dry < 2 {
		t.Errorf("%d commands have -n", dry)
	}
}

// A pause and a protection may last a day, by the units that --since takes.
func TestForTakesDays(t *testing.T) {
	for _, args := range [][]string{{"pause"}, {"protect", "d/a"}} {
		cmd, _, err := newRoot().Find(args)
		if err != nil {
			t.Fatal(err)
		}
		f := cmd.Flags().Lookup("for")
		if err := f.Value.Set("0.5d"); err != nil || f.Value.String() != "12h0m0s" {
			t.Errorf("%s: %s, %v", args[0], f.Value, err)
		}
		if err := f.Value.Set("1 day"); err == nil {
			t.Errorf("%s: takes another unit", args[0])
		}
	}
}
