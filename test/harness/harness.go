// Package harness runs the criguard binary in tests: its commands and its service.
package harness

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/test/lab"
	"github.com/criguard/criguard/test/need"
)

// Patience limits the wait for a condition that takes seconds on a quiet machine.
const Patience = 3 * time.Minute

// Criguard is the binary under test. Main builds it.
var Criguard string

// Main is lab.Main with the binary under test.
func Main(m interface{ Run() int }, prepare ...func(ctx context.Context, dir string) error) int {
	return lab.Main(m, append(prepare, func(ctx context.Context, dir string) error {
		Criguard = filepath.Join(dir, "criguard")
		return lab.BuildCriguard(ctx, Criguard)
	})...)
}

// StartLab starts a lab for a single test.
func StartLab(t *testing.T, options lab.Options) *lab.Lab {
	t.Helper()
	need.Root(t)
	options.Say = t.Logf
	l, err := lab.Start(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("runs on containerd %s", l.Version())
	return l
}

// RunPod runs a pod until the end of the test.
func RunPod(t *testing.T, l *lab.Lab, spec lab.PodSpec) *lab.RunningPod {
	t.Helper()
	p, err := l.RunPod(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := l.RemovePod(ctx, p); err != nil {
			t.Error(err)
		}
	})
	return p
}

// ShortDir returns a directory whose path leaves room for a socket's name.
func ShortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "criguard")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Node has criguard's configuration, socket and history in one directory.
type Node struct {
	*testing.T
	Dir     string
	Command func(args ...string) *exec.Cmd // returns a criguard command; nil = the machine as it is
}

// Config returns the path of the configuration.
func (n *Node) Config() string { return filepath.Join(n.Dir, "config.toml") }

// Configure writes the configuration.
func (n *Node) Configure(text string) {
	n.Helper()
	if err := os.WriteFile(n.Config(), []byte(text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// Args adds the arguments that every command needs.
func (n *Node) Args(args ...string) []string {
	return append(args, "--config", n.Config(), "--run-dir", n.Dir)
}

func (n *Node) command(args ...string) *exec.Cmd {
	if n.Command != nil {
		return n.Command(args...)
	}
	return exec.Command(Criguard, args...)
}

// Client returns a client of the service.
func (n *Node) Client() *control.Client { return control.NewClient(rundir.Dir(n.Dir)) }

// Within polls until a condition is true, and fails the test after the limit.
func (n *Node) Within(limit time.Duration, what string, done func() bool) {
	n.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.Fatalf("waited %s in vain for %s", limit, what)
		}
	}
}

// Answer is a command's output and exit code.
type Answer struct {
	Out, Err string
	Code     int
}

// Run runs a criguard command with exactly these arguments.
func (n *Node) Run(args ...string) Answer {
	n.Helper()
	var out, errs strings.Builder
	cmd := n.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		n.Fatal(err)
	}
	return Answer{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// OnTerminal runs a criguard command on a terminal, with this input. Its output includes standard error.
func OnTerminal(t *testing.T, input string, args ...string) Answer {
	t.Helper()
	cmd := exec.Command("script", "-qec", Criguard+" "+strings.Join(args, " "), "/dev/null")
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Answer{Out: string(out), Code: cmd.ProcessState.ExitCode()}
}

// Ask runs a command with JSON output. A finding is not a failure, and neither is a status without a runtime.
func Ask[T any](n *Node, args ...string) T {
	n.Helper()
	var v T
	a := n.Run(n.Args(append(args, "-o", "json")...)...)
	var failed api.Error
	if err := json.Unmarshal([]byte(a.Out), &failed); a.Code > 1 && (err != nil || failed.Error != "") {
		n.Fatalf("criguard %s: exit code %d: %s%s", strings.Join(args, " "), a.Code, a.Out, a.Err)
	}
	if err := json.Unmarshal([]byte(a.Out), &v); err != nil {
		n.Fatalf("criguard %s: %v in %q", strings.Join(args, " "), err, a.Out)
	}
	return v
}

// Service is a running `criguard run`.
type Service struct {
	Cmd    *exec.Cmd
	node   *Node
	exited chan struct{}

	mu  sync.Mutex
	log strings.Builder
}

// Start starts the service and returns when it answers. The service ends with the test. Thresholds that are held because
// they are met already are put in force: the test wants it.
func (n *Node) Start() *Service {
	n.Helper()
	s := n.StartHeld()
	if st, err := n.Client().Status(context.Background()); err != nil {
		n.Fatal(err)
	} else if slices.ContainsFunc(st.Alarms, func(a string) bool { return strings.Contains(a, " held for ") }) {
		if _, err := n.Client().Command(context.Background(), api.Command{Command: api.CommandReload, Now: true}); err != nil {
			n.Fatal(err)
		}
	}
	return s
}

// StartHeld starts the service as Start does, but leaves thresholds held that are met already.
func (n *Node) StartHeld() *Service {
	n.Helper()
	s := &Service{Cmd: n.command(n.Args("run")...), node: n, exited: make(chan struct{})}
	s.Cmd.Stderr = s
	if err := s.Cmd.Start(); err != nil {
		n.Fatal(err)
	}
	go func() {
		_ = s.Cmd.Wait()
		close(s.exited)
	}()
	n.Cleanup(func() {
		if s.Runs() {
			s.End()
		}
		if n.Failed() || os.Getenv("SHOWLOG") != "" {
			n.Logf("the service's log:\n%s", s.Logged())
		}
	})
	n.Within(Patience, "the service to answer", func() bool {
		if !s.Runs() {
			n.Fatalf("the service ended: %s\n%s", s.Cmd.ProcessState, s.Logged())
		}
		_, err := n.Client().Status(context.Background())
		return err == nil
	})
	return s
}

// Write collects the service's log.
func (s *Service) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

// Logged returns the log so far.
func (s *Service) Logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// Runs reports whether the service has not ended.
func (s *Service) Runs() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// End ends the service with SIGTERM and returns how long that took. The test fails unless it ends cleanly.
func (s *Service) End() (took time.Duration) {
	s.node.Helper()
	begin := time.Now()
	if err := s.Cmd.Process.Signal(unix.SIGTERM); err != nil {
		s.node.Error(err)
	}
	select {
	case <-s.exited:
	case <-time.After(Patience):
		_ = s.Cmd.Process.Kill()
		<-s.exited
	}
	took = time.Since(begin)
	if code := s.Cmd.ProcessState.ExitCode(); code != 0 {
		s.node.Errorf("the service ended with %s, want exit code 0", s.Cmd.ProcessState)
	}
	return took
}

// Kill ends the service with SIGKILL.
func (s *Service) Kill() {
	s.node.Helper()
	if err := s.Cmd.Process.Kill(); err != nil {
		s.node.Fatal(err)
	}
	<-s.exited
}
