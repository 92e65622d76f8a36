package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
				code, _, errs := captured(t, append(args, "--run-dir", dir)...)
				if code != cli.ExitUnreachable {
					t.Errorf("%s: exit code %d, want %d", args[0], code, cli.ExitUnreachable)
				}
				if want := fmt.Sprintf("the criguard service did not answer (pid %d): ", os.Getpid()); !strings.Contains(errs, want) || strings.Contains(errs, "http://") {
					t.Errorf("%s: no %q in %s", args[0], want, errs)
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
	if err := os.WriteFile(config, []byte("# the defaults\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	met := filepath.Join(t.TempDir(), "met.toml")
	if err := os.WriteFile(met, []byte("[eviction.hard]\n\"memory.available\" = \"99.99%\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	line := `{"at":"0s","signals":{"memory.available":{"available":1,"capacity":1073741824}},"pods":[{"name":"a/b","memory_usage":1073741823}]}` + "\n"
	if err := os.WriteFile(trace, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"version"}, {"version", "-o", "json"}, {"check", config, "--offline"}, {"--help"}, {"completion", "bash"},
		{"check", met}, {"check", met, "-o", "json"}, // with a finding, for which it exits with 1
		{"simulate", "--config", config, trace},
	} {
		errs, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout, os.Stderr = full, errs
		code := execute(args)
		text, err := os.ReadFile(errs.Name())
		if code != cli.ExitUsage || strings.Count(string(text), "no space left on device") != 1 || strings.Contains(string(text), traceHint) || err != nil {
			t.Errorf("%q: exit code %d, %s (%v)", args, code, text, err)
		}
		_ = errs.Close()
	}
}

// A command that a file blocks ends with the second signal, as with two times Ctrl-C.
func TestSecondSignal(t *testing.T) {
	const inChild = "READ_THIS_FIFO"
	if fifo := os.Getenv(inChild); fifo != "" {
		execute([]string{"check", "--offline", fifo})
		return
	}
	begin := time.Now()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestSecondSignal$")
	child.Env = append(os.Environ(), inChild+"="+fifo)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = child.Wait(); close(ended) }()
	deadline := time.Now().Add(time.Minute)
	var writer *os.File
	for writer == nil { // until the child has opened it
		if time.Now().After(deadline) {
			t.Fatal("the child does not read")
		}
		time.Sleep(time.Millisecond)
		writer, _ = os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0)
	}
	defer func() { _ = writer.Close() }()
	for {
		_ = child.Process.Signal(os.Interrupt)
		select {
		case <-ended:
			if ws, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGINT {
				t.Errorf("it ended with %s", child.ProcessState)
			}
			if took := time.Since(begin); took < secondSignal {
				t.Errorf("it ended after %s: signals that timeout(1) sends twice end a command before it has said how it ended", took)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = child.Process.Kill()
			t.Fatal("it does not end")
		}
	}
}
