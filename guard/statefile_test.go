package guard

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/conditions"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/machine"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/systemd"
)

// withUmask sets the process's umask for a test, which must not be parallel.
func withUmask(t *testing.T, mask int) {
	t.Helper()
	old := syscall.Umask(mask)
	t.Cleanup(func() { syscall.Umask(old) })
}

// openToOthers lists the files below a directory that users other than root and group criguard may use in any
// way. The service is running: a temporary file may get its name between being listed and being looked at.
func openToOthers(t *testing.T, dir string) (open []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && !d.IsDir() && info.Mode().Perm()&0o007 != 0 {
			open = append(open, strings.TrimPrefix(path, dir+"/")+" "+info.Mode().String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// Whatever the umask, other users can read only the conditions file. A service also restricts the files that
// an older one left open to them.
func TestStateFilesAreClosedToOthers(t *testing.T) {
	for name, mask := range map[string]int{"no umask": 0, "the unit's umask": 0o077} {
		t.Run(name, func(t *testing.T) {
			withUmask(t, mask)
			dir := filepath.Join(t.TempDir(), "run")
			if mask == 0 {
				leaveOpenFiles(t, dir)
			}
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() {
				served <- Serve(ctx, ServiceOptions{
					Config: configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'")), Dir: rundir.Dir(dir),
					Machine: machine.Real(), Log: slog.New(slog.DiscardHandler), Notifier: &systemd.Notifier{},
				})
			}()
			defer func() {
				cancel()
				if err := <-served; err != nil {
					t.Error(err)
				}
				if open := openToOthers(t, dir); len(open) > 0 {
					t.Errorf("open to others after the end: %s", strings.Join(open, ", "))
				}
			}()
			client := control.NewClient(rundir.Dir(dir))
			nodetest.Await(t, "the service", func() bool { _, err := client.Status(t.Context()); return err == nil })
			nodetest.Await(t, "the conditions", func() bool { _, err := os.Stat(filepath.Join(dir, conditions.File)); return err == nil })
			if open := openToOthers(t, dir); len(open) != 1 || open[0] != conditions.File+" -rw-r--r--" {
				t.Errorf("open to others: %s; want the conditions file alone", strings.Join(open, ", "))
			}
			for _, file := range []string{tornHistory, tornWindow} {
				if _, err := os.Lstat(filepath.Join(dir, file)); !os.IsNotExist(err) {
					t.Errorf("%s, left by a crash, is there after a start: %v", file, err)
				}
			}
			if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("run directory: %v, %v; want 0755, for the conditions file", st.Mode(), err)
			}
			if st, err := os.Stat(filepath.Join(dir, "lock")); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("lock: %v, %v; want 0600", st.Mode(), err)
			}
			if _, err := client.Command(t.Context(), api.Command{Command: api.CommandPause, For: api.Duration(time.Hour)}); err != nil {
				t.Fatal(err)
			}
			nodetest.Await(t, "the history", func() bool {
				text, _ := os.ReadFile(filepath.Join(dir, history.FileName))
				return strings.Contains(string(text), api.CommandPause)
			})
			if _, err := os.Stat(filepath.Join(dir, ordersFile)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Temporary files of a service that crashed while it wrote them.
const (
	tornHistory = "." + history.FileName + "-1"
	tornWindow  = history.WindowDir + "/.stop-1.json-1"
)

// leaveOpenFiles creates the files of a service that left them open to everyone, and crashed.
func leaveOpenFiles(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, history.WindowDir), 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"lock": "", budgetFile: "{}", ordersFile: "{}", history.FileName: `{"id":1}` + "\n", filepath.Join(history.WindowDir, "stop-1.json"): `{"pass":1}`,
		tornHistory: "{", tornWindow: "{",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
