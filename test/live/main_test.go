package live_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// binary is criguard, built once with the race detector.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "criguard-live-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "criguard")
	if out, err := exec.Command("go", "build", "-race", "-o", binary, "../../cmd/criguard").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build criguard: %v\n%s", err, out)
		return 1
	}
	return lab.Main(m)
}

// live is a node with its guard.
type live struct {
	*testing.T
	lab  *lab.Lab
	dir  string
	cmd  *exec.Cmd
	done chan error

	mu  sync.Mutex
	log bytes.Buffer
}

func newLive(t *testing.T, l *lab.Lab) *live {
	t.Helper()
	n := &live{T: t, lab: l, dir: t.TempDir()}
	t.Cleanup(n.stop)
	return n
}

// Write keeps the guard's log.
func (n *live) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.Write(b)
}

func (n *live) logged() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.String()
}

func (n *live) config() string { return filepath.Join(n.dir, "config.toml") }

// configure writes the configuration: where the lab is, and what the test asks for.
func (n *live) configure(more string) {
	n.Helper()
	text := fmt.Sprintf("[runtime]\nendpoint = %q\n[node]\nroot_dir = %q\npod_log_dir = %q\npods_cgroup = %q\n[history]\ndir = %q\n%s",
		n.lab.Endpoint(), n.lab.KubeletRoot(), n.lab.PodLogDir(), n.lab.PodsCgroup(), n.dir, more)
	if err := os.WriteFile(n.config(), []byte(text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// off switches the thresholds off that a busy machine may meet by itself.
const off = "\"memory.available\" = \"0%\"\n\"nodefs.available\" = \"0%\"\n\"nodefs.inodesFree\" = \"0%\"\n\"imagefs.available\" = \"0%\"\n\"imagefs.inodesFree\" = \"0%\"\n"

func (n *live) args(args ...string) []string {
	return append(args, "--config", n.config(), "--run-dir", n.dir)
}

func (n *live) start(flags ...string) {
	n.Helper()
	n.cmd = exec.Command(binary, n.args(append([]string{"run"}, flags...)...)...)
	n.cmd.Stderr = n
	if err := n.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.done = make(chan error, 1)
	go func() { n.done <- n.cmd.Wait() }()
	n.until("the service to answer", func() bool { _, err := n.ask("status"); return err == nil })
}

// stop ends the guard and returns how long that took.
func (n *live) stop() {
	if n.cmd == nil {
		return
	}
	begin := time.Now()
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	n.cmd = nil
	err := <-n.done
	if took := time.Since(begin); err != nil || took > 5*time.Second {
		n.Errorf("the guard ended after %s: %v\n%s", took, err, n.logged())
	}
}

// ask runs a command of criguard's; exit code 1 is a finding, no failure.
func (n *live) ask(args ...string) (string, error) {
	out, err := exec.Command(binary, n.args(args...)...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil
	}
	return string(out), err
}

func (n *live) status() guard.Status {
	n.Helper()
	var st guard.Status
	out, err := n.ask("status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &st)
	}
	if err != nil {
		n.Fatalf("criguard status: %v\n%s", err, n.logged())
	}
	return st
}

func (n *live) history() []guard.Pass {
	n.Helper()
	var l guard.HistoryList
	out, err := n.ask("history", "-n", "0", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &l)
	}
	if err != nil {
		n.Fatalf("criguard history: %v\n%s", err, n.logged())
	}
	return l.Passes
}

// stops lists the stops in the history, in their order.
func (n *live) stops() []guard.Pass {
	n.Helper()
	var stops []guard.Pass
	for _, p := range n.history() {
		if p.Stop != nil {
			stops = append(stops, p)
		}
	}
	return stops
}

func (n *live) until(what string, done func() bool) {
	n.Helper()
	deadline := time.Now().Add(time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			n.Fatalf("timed out waiting for %s\n%s", what, n.logged())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// pod runs a pod until the end of the test.
func (n *live) pod(spec lab.PodSpec) *lab.RunningPod {
	n.Helper()
	p, err := n.lab.RunPod(context.Background(), spec)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		if err := n.lab.RemovePod(context.Background(), p); err != nil {
			n.Error(err)
		}
	})
	return p
}

func one(args ...string) []lab.ContainerSpec {
	return []lab.ContainerSpec{{Name: "main", Args: args}}
}

// available is what a signal has now.
func (n *live) available(s policy.Signal) int64 {
	n.Helper()
	for _, v := range n.status().Signals {
		if v.Signal == s {
			return v.Available
		}
	}
	n.Fatalf("%s is not observed", s)
	return 0
}

func count(s, part string) int { return strings.Count(s, part) }
