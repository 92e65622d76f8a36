package hold

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// After a reload, the alarm speaks of the configuration. At the start there was none before: only the met thresholds
// wait, and there is nothing to reload a second time.
func TestAlarm(t *testing.T) {
	memory := api.MetNow{Signal: policy.MemoryAvailable, Amount: 2 << 30, Available: 1 << 30, First: "ci/job4"}
	disk := api.MetNow{Signal: policy.NodeFSAvailable, Amount: 2 << 30, Available: 1 << 30, First: "ci/job5"}
	for _, c := range []struct {
		held        Held
		alarm, line string
	}{
		{
			Held{Met: []api.MetNow{memory}},
			"hard memory.available is met NOW, 1Gi < 2Gi: a reload would stop ci/job4 first; the configuration is held for 20s and then put in force " +
				"(`criguard reload --now`, or a second `criguard reload`, does not wait)",
			"configuration held: hard memory.available is met NOW, 1Gi < 2Gi: a reload would stop ci/job4 first",
		},
		{
			Held{Met: []api.MetNow{memory}, AtStart: true},
			"hard memory.available is met NOW, 1Gi < 2Gi: in force, it would stop ci/job4 first; the threshold is held for 20s and then put in force; " +
				"the rest of the configuration is in force (`criguard reload` does not wait)",
			"threshold held: hard memory.available is met NOW, 1Gi < 2Gi: in force, it would stop ci/job4 first",
		},
		{
			Held{Met: []api.MetNow{memory, disk}, AtStart: true},
			"hard memory.available is met NOW, 1Gi < 2Gi: in force, it would stop ci/job4 first; " +
				"hard nodefs.available is met NOW, 1Gi < 2Gi: in force, it would remove what it may, then stop ci/job5 first; the thresholds are held for 20s and then put in force; " +
				"the rest of the configuration is in force (`criguard reload` does not wait)",
			"threshold held: hard memory.available is met NOW, 1Gi < 2Gi: in force, it would stop ci/job4 first",
		},
	} {
		c.held.Until = time.Minute
		if got := c.held.Alarm(40 * time.Second); got != c.alarm {
			t.Errorf("got\n%s\nwant\n%s", got, c.alarm)
		}
		if got := c.held.Line(); got != c.line {
			t.Errorf("got\n%s\nwant\n%s", got, c.line)
		}
	}
}

// A disk that does not answer delays no start: no threshold was in force then. Neither is one whose file is not regular.
func TestInForceOnADiskThatStalls(t *testing.T) {
	none := func(f *InForce) {
		t.Helper()
		if _, was := f.Get().For(policy.MemoryAvailable, 1<<40); was {
			t.Error("a threshold was in force")
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	answer, answered := make(chan []byte), make(chan struct{})
	f := &InForce{run: rundir.Dir(t.TempDir())}
	f.load(ended, func(string, rundir.Access) ([]byte, error) { // returns only after load
		defer close(answered)
		return <-answer, nil
	})
	none(f)
	answer <- []byte(`{"memory.available":"1Gi"}`)
	<-answered
	none(f)

	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, FileName), 0o600); err != nil {
		t.Fatal(err)
	}
	none(Open(t.Context(), rundir.Dir(dir), rundir.Dir(dir), rundir.ForOperators()))
}

// The thresholds in force outlive the process, once they are saved. A file that cannot be read counts as none, and a
// write that fails is tried again.
func TestInForce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	access := rundir.ForOperators()
	met := func(amount int64) api.MetNow {
		return api.MetNow{Signal: policy.MemoryAvailable, Amount: amount, Capacity: 16 << 30}
	}
	f := Open(t.Context(), rundir.Dir(dir), rundir.Dir(dir), access)
	if f.Had(met(1)) || f.Save() != nil {
		t.Error("there are thresholds without a file, or they are saved")
	}
	cfg, err := config.Parse("a", strings.NewReader("[eviction.hard]\n'memory.available' = '1Gi'\n"))
	if err != nil {
		t.Fatal(err)
	}
	f.Set(cfg.Hard())
	if !f.Had(met(1<<30)) || f.Had(met(1<<30+1)) {
		t.Errorf("in force are %v", f.Get())
	}
	if f.Save() == nil {
		t.Error("saved without a directory")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(); err != nil {
		t.Error(err)
	}
	if again := Open(t.Context(), rundir.Dir(dir), rundir.Dir(dir), access); !again.Had(met(1<<30)) || again.Had(met(1<<30+1)) {
		t.Errorf("read %v", again.Get())
	}
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := Open(t.Context(), rundir.Dir(dir), rundir.Dir(dir), access); len(again.Get()) > 0 {
		t.Errorf("read %v from a torn file", again.Get())
	}
}

// A threshold whose signal could not be read may be met, unless one at least as high was in force, in the same unit. One that
// follows from another counts if the signal had one.
func TestUnchecked(t *testing.T) {
	hard := func(text string) config.HardThresholds {
		cfg, err := config.Parse("a", strings.NewReader("[eviction.hard]\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Hard()
	}
	const memory, allocatable = "'memory.available' = '1Gi'\n", "'allocatableMemory.available' = '2Gi'\n"
	down := errors.New("down")
	for _, c := range []struct {
		before, after, unread, want string
	}{
		{memory, "'memory.available' = '2Gi'", "memory.available", "memory.available 2Gi"},
		{memory, "'memory.available' = '2Gi'", "pid.available", ""},
		{memory, "'memory.available' = '1Gi'", "memory.available", ""},
		{memory, "'memory.available' = '1Mi'", "memory.available", ""},
		{memory, "'memory.available' = '1%'", "memory.available", "memory.available 1%"},
		{memory, "'memory.available' = '0%'", "memory.available", ""},
		{"", "'nodefs.available' = '9%'", "nodefs.available", ""},
		{"", "'nodefs.available' = '11%'", "nodefs.available", "nodefs.available 11%"},
		{allocatable, "'memory.available' = '3Gi'", "allocatableMemory.available", "allocatableMemory.available 3Gi"},
		{memory, "'memory.available' = '3Gi'", "allocatableMemory.available", ""},
	} {
		f := Open(t.Context(), "", rundir.Dir(t.TempDir()), rundir.ForOperators())
		f.Set(hard(c.before))
		got := ""
		for _, m := range f.Unchecked(hard(c.after), func(s policy.Signal) error {
			if s.String() == c.unread {
				return down
			}
			return nil
		}) {
			got += m.Signal.String() + " " + m.Value
			if want := "hard " + m.Signal.String() + " = " + m.Value + " was not checked (down): a reload may stop pods"; m.String() != want {
				t.Errorf("%q, want %q", m, want)
			}
		}
		if got != c.want {
			t.Errorf("%q after %q without %s: %q, want %q", c.after, c.before, c.unread, got, c.want)
		}
	}
}

// Within a boot, the copy in the run directory counts: it needs no disk. An older one does not stay if it cannot be replaced.
func TestInForceWithinABoot(t *testing.T) {
	run, state, access := rundir.Dir(t.TempDir()), rundir.Dir(t.TempDir()), rundir.ForOperators()
	hard := func(text string) config.HardThresholds {
		cfg, err := config.Parse("a", strings.NewReader("[eviction.hard]\n'memory.available' = '"+text+"'\n"))
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Hard()
	}
	want := func(f *InForce, text string) {
		t.Helper()
		if !maps.Equal(f.Get(), hard(text)) {
			t.Errorf("in force are %v, want %s", f.Get(), text)
		}
	}
	f := Open(t.Context(), run, state, access)
	f.Set(hard("1Gi"))
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	stalled, end := context.WithCancel(t.Context())
	end()
	again := &InForce{run: run, state: state, access: access}
	again.load(stalled, func(string, rundir.Access) ([]byte, error) { return nil, errors.New("stalled") })
	want(again, "1Gi")
	want(Open(t.Context(), rundir.Dir(t.TempDir()), state, access), "1Gi") // after a reboot

	if err := errors.Join(os.Remove(run.Path(FileName)), os.Mkdir(run.Path(FileName), 0o700)); err != nil { // nothing replaces a directory
		t.Fatal(err)
	}
	f.Set(hard("2Gi"))
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	want(Open(t.Context(), run, state, access), "2Gi")
}
