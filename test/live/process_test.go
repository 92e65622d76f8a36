package live_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/systemd"
)

// endWithin is how long criguard has to end, also while a stop is in flight.
const endWithin = 5 * time.Second

// service is a `criguard run`.
type service struct {
	*node
	cmd    *exec.Cmd
	exited chan struct{}

	mu  sync.Mutex
	log strings.Builder
}

// Write takes the service's log.
func (s *service) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

func (s *service) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// events are the lines of the log about a kind of event.
func (s *service) events(kind systemd.Event) []string {
	var lines []string
	for line := range strings.Lines(s.logged()) {
		if slices.Contains(strings.Fields(line), systemd.EventKey+"="+string(kind)) {
			lines = append(lines, line)
		}
	}
	return lines
}

// start starts the service and returns when it answers. It ends with the test.
func (n *node) start() *service {
	n.Helper()
	s := &service{node: n, exited: make(chan struct{})}
	s.cmd = n.command(n.args("run")...)
	s.cmd.Stderr = s
	if err := s.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	n.Cleanup(func() {
		if s.runs() {
			s.end()
		}
		if n.Failed() || os.Getenv("SHOWLOG") != "" {
			n.Logf("the service's log:\n%s", s.logged())
		}
	})
	n.until("the service to answer", func() bool {
		if !s.runs() {
			n.Fatalf("the service ended: %s\n%s", s.cmd.ProcessState, s.logged())
		}
		_, err := guard.NewClient(guard.RunDir(n.dir)).Status(context.Background())
		return err == nil
	})
	return s
}

// startWith starts the service and returns when it knows so many pods.
func (n *node) startWith(pods int) *service {
	n.Helper()
	s := n.start()
	n.until("the pods to be listed", func() bool {
		st := s.status()
		return st.Runtime.Up && st.Pods == pods
	})
	return s
}

func (s *service) runs() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// end ends the service with SIGTERM, cleanly, and returns how long that took.
func (s *service) end() (took time.Duration) {
	s.Helper()
	begin := time.Now()
	if err := s.cmd.Process.Signal(unix.SIGTERM); err != nil {
		s.Error(err)
	}
	select {
	case <-s.exited:
	case <-time.After(patience):
		_ = s.cmd.Process.Kill()
		<-s.exited
		s.Errorf("the service did not end within %s", patience)
	}
	took = time.Since(begin)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		s.Errorf("the service ended with %s, want exit code 0", s.cmd.ProcessState)
	}
	return took
}

// kill ends the service with SIGKILL.
func (s *service) kill() {
	s.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.Fatal(err)
	}
	<-s.exited
}

// reload has the service read its configuration again.
func (s *service) reload() {
	s.Helper()
	if err := s.cmd.Process.Signal(unix.SIGHUP); err != nil {
		s.Fatal(err)
	}
}

func (s *service) status() guard.Status {
	s.Helper()
	st, err := guard.NewClient(guard.RunDir(s.dir)).Status(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	return st
}

func (s *service) history() []guard.Pass {
	s.Helper()
	passes, err := guard.NewClient(guard.RunDir(s.dir)).History(context.Background(), 0)
	if err != nil {
		s.Fatal(err)
	}
	return passes
}

// stops are the passes that began a stop.
func (s *service) stops() []guard.Pass {
	s.Helper()
	return slices.DeleteFunc(s.history(), func(p guard.Pass) bool { return p.Stop == nil })
}

// settled are the stops whose outcome is known.
func (s *service) settled() []guard.StopView {
	s.Helper()
	var all []guard.StopView
	for _, p := range s.history() {
		all = append(all, p.Settled...)
	}
	return all
}

// stopped waits until one stop has settled, and makes sure that it was the only
// one, of that pod, and that nothing of it runs.
func (s *service) stopped(pod string) guard.StopView {
	s.Helper()
	s.until("a stop to settle", func() bool { return len(s.settled()) > 0 })
	if stops, settled := s.stops(), s.settled(); len(stops) != 1 || len(settled) != 1 || settled[0].Pod != pod || !settled[0].Result.Emptied {
		s.Fatalf("stops %+v, settled %+v, want one, of %s", stops, settled, pod)
	}
	return s.settled()[0]
}

// args adds what every command needs.
func (n *node) args(args ...string) []string {
	return append(args, "--config", n.config(), "--run-dir", n.dir)
}

// answer is what a command printed and how it ended.
type answer struct {
	out, err string
	code     int
}

// criguard runs one of its commands.
func (n *node) criguard(args ...string) answer {
	n.Helper()
	var out, errs strings.Builder
	cmd := n.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		n.Fatal(err)
	}
	return answer{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// ask runs a command for programs; exit code 1 is a finding, no failure.
func ask[T any](n *node, args ...string) T {
	n.Helper()
	var v T
	a := n.criguard(n.args(append(args, "-o", "json")...)...)
	if a.code > 1 {
		n.Fatalf("criguard %s: exit code %d: %s", strings.Join(args, " "), a.code, a.err)
	}
	if err := json.Unmarshal([]byte(a.out), &v); err != nil {
		n.Fatalf("criguard %s: %v in %q", strings.Join(args, " "), err, a.out)
	}
	return v
}
