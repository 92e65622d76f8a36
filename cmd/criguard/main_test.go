package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
)

// runDir returns a directory whose path is short enough for a socket.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "criguard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A refusal is shown in the service's words alone, with what to do.
func TestRefusal(t *testing.T) {
	dir := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(api.Error{Error: "refused: vault/keys must not be stopped: protect rule 1"})
	})
	code, _, errs := captured(t, "stop", "vault/keys", "--yes", "--run-dir", dir)
	if code != cli.ExitUsage || !strings.HasPrefix(errs, "criguard: refused: vault/keys must not be stopped: protect rule 1\nhint: ") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// A service that ends during a request, even in the middle of its answer, counts as unreachable.
// criguard does not inspect the node directly instead.
func TestNoAnswer(t *testing.T) {
	for name, answer := range map[string]string{"none": "", "half of one": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"} {
		t.Run(name, func(t *testing.T) {
			dir := runDir(t)
			l, err := net.Listen("unix", rundir.Dir(dir).Socket())
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
					_, _ = conn.Read(make([]byte, 8<<10))
					_, _ = io.WriteString(conn, answer)
					_ = conn.Close()
				}
			}()
			defer func() { _ = l.Close(); <-done }()
			for _, args := range [][]string{{"status"}, {"rank"}, {"history"}, {"metrics"}, {"pause"}} {
				if code := execute(append(args, "--run-dir", dir)); code != cli.ExitUnreachable {
					t.Errorf("%s: exit code %d, want %d", args[0], code, cli.ExitUnreachable)
				}
			}
		})
	}
	if ce := codeOf(control.ErrNoAnswer); ce.Hint == "" {
		t.Errorf("%v: nothing says what to do", ce)
	}
}

// Output that could not be written is an error, on standard error also for a program, and once.
func TestFullOutput(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	for _, args := range [][]string{{"version"}, {"version", "-o", "json"}, {"check", config, "--offline"}, {"--help"}, {"completion", "bash"}} {
		errs, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout, os.Stderr = full, errs
		code := execute(args)
		text, err := os.ReadFile(errs.Name())
		if code != cli.ExitUsage || strings.Count(string(text), "no space left on device") != 1 || err != nil {
			t.Errorf("%q: exit code %d, %s (%v)", args, code, text, err)
		}
		_ = errs.Close()
	}
}
