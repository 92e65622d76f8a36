package guard

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/conditions"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/hold"
	"github.com/criguard/criguard/guard/rundir"
)

// A sweep removes criguard's temporary files that a crash left behind. It keeps a file that is being written,
// and every other file.
func TestSweepTemporary(t *testing.T) {
	left := []string{".history.jsonl-123", ".stop-7.json-1", ".budget.json-99", ".samples.json-4", ".fleet.json-7", ".fleet-agent.json-8", ".orders.json-0", ".conditions.json-5", ".thresholds.json-3"}
	others := []string{"history.jsonl", "orders.json", ".history.jsonl-", ".history.jsonl-12x", ".other.json-1", "history.jsonl-1", ".budget.json-9.bak", ".stop-x.json-1"}
	for name, c := range map[string]struct {
		age, older time.Duration
		gone       bool
	}{
		"under the lock":                   {0, 0, true},
		"old, in a directory of others":    {sweepAge, sweepAge, true},
		"recent, in a directory of others": {sweepAge - time.Minute, sweepAge, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, now := t.TempDir(), time.Now()
			for _, f := range slices.Concat(left, others) {
				path := filepath.Join(dir, f)
				if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(path, now, now.Add(-c.age)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, ".history.jsonl-4"), 0o700); err != nil {
				t.Fatal(err)
			}
			rundir.SweepTemporary(dir, c.older, now)
			for _, f := range slices.Concat(left, others, []string{".history.jsonl-4"}) {
				_, err := os.Lstat(filepath.Join(dir, f))
				if want := c.gone && slices.Contains(left, f); os.IsNotExist(err) != want {
					t.Errorf("%s: gone: %t, want %t", f, os.IsNotExist(err), want)
				}
			}
		})
	}
}

// Without a directory of its own, the history is in the run directory. A sweep leaves the working directory
// alone.
func TestSweepLeavesTheWorkingDirectory(t *testing.T) {
	run := t.TempDir()
	t.Chdir(t.TempDir())
	if err := os.Mkdir(history.WindowDir, 0o700); err != nil {
		t.Fatal(err)
	}
	other, old := filepath.Join(history.WindowDir, ".stop-7.json-1"), time.Unix(0, 0)
	if err := errors.Join(os.WriteFile(other, []byte("x"), 0o600), os.Chtimes(other, old, old)); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(*testing.T) {
		(&Service{opt: ServiceOptions{Dir: rundir.Dir(run)}}).sweep()
		synctest.Wait()
	})
	if _, err := os.Lstat(other); err != nil {
		t.Error(err)
	}
}

// A sweep finds the temporary files that rundir writes.
func TestSweepFindsWhatIsWritten(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{history.FileName, "stop-7.json", budgetFile, samplesFile, ordersFile, conditions.File, hold.FileName, "fleet.json", "fleet-agent.json"} {
		f, err := os.CreateTemp(dir, rundir.TemporaryName(name))
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		rundir.SweepTemporary(dir, 0, time.Now().Add(time.Hour))
		if _, err := os.Lstat(f.Name()); !os.IsNotExist(err) {
			t.Errorf("%s is left", f.Name())
		}
	}
}
