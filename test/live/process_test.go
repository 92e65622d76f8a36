package live_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/harness"
)

// service is a running `criguard run`.
type service struct {
	*node
	*harness.Service
}

// events returns the log lines of a kind of event.
func (s *service) events(kind systemd.Event) []string {
	var lines []string
	for line := range strings.Lines(s.Logged()) {
		if slices.Contains(strings.Fields(line), systemd.EventKey+"="+string(kind)) {
			lines = append(lines, line)
		}
	}
	return lines
}

// start starts the service and returns when it answers. The service ends with the test.
func (n *node) start() *service {
	n.Helper()
	return &service{n, n.harness().Start()}
}

// startWith starts the service and returns when it has listed the given number of pods.
func (n *node) startWith(pods int) *service {
	n.Helper()
	s := n.start()
	n.until("the pods to be listed", func() bool {
		st := s.status()
		return st.Runtime.Up && st.Pods == pods
	})
	return s
}

// reload puts the configuration in force, even if it meets a hard threshold at once.
func (s *service) reload() {
	s.Helper()
	if a := s.criguard(s.args("reload", "--now")...); a.Code != 0 {
		s.Fatalf("reload: exit code %d, %s%s", a.Code, a.Out, a.Err)
	}
}

// hangup makes the service re-read its configuration.
func (s *service) hangup() {
	s.Helper()
	if err := s.Cmd.Process.Signal(unix.SIGHUP); err != nil {
		s.Fatal(err)
	}
}

func (s *service) status() api.Status {
	s.Helper()
	st, err := control.NewClient(rundir.Dir(s.dir)).Status(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	return st
}

func (s *service) history() []api.Pass {
	s.Helper()
	passes, err := control.NewClient(rundir.Dir(s.dir)).History(context.Background(), 0)
	if err != nil {
		s.Fatal(err)
	}
	return passes
}

// stops returns the passes that started a stop.
func (s *service) stops() []api.Pass {
	s.Helper()
	return slices.DeleteFunc(s.history(), func(p api.Pass) bool { return p.Stop == nil })
}

// settled returns the stops whose outcome is known.
func (s *service) settled() []api.StopView {
	s.Helper()
	var all []api.StopView
	for _, p := range s.history() {
		all = append(all, p.Settled...)
	}
	return all
}

// stopped waits until a stop has settled. It checks that it was the only one, that it was for that
// pod, and that the pod is gone.
func (s *service) stopped(pod string) api.StopView {
	s.Helper()
	s.until("a stop to settle", func() bool { return len(s.settled()) > 0 })
	if stops, settled := s.stops(), s.settled(); len(stops) != 1 || len(settled) != 1 || settled[0].Pod != pod || !settled[0].Result.Emptied {
		s.Fatalf("innocent pod: stops %+v, settled %+v, want one, of %s", stops, settled, pod)
	}
	return s.settled()[0]
}

func (n *node) harness() *harness.Node {
	return &harness.Node{T: n.T, Dir: n.dir, Command: n.command}
}

func (n *node) args(args ...string) []string { return n.harness().Args(args...) }

// criguard runs a criguard command.
func (n *node) criguard(args ...string) harness.Answer { n.Helper(); return n.harness().Run(args...) }

// endless runs a criguard command that does not end by itself. It returns a function that returns its output so far, and
// one that interrupts it and returns its exit code.
func (n *node) endless(args ...string) (output func() string, interrupt func() (code int)) {
	n.Helper()
	path := filepath.Join(n.TempDir(), "out")
	out, err := os.Create(path)
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd := n.command(n.args(args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	end := func(by os.Signal) int {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Signal(by)
			_ = cmd.Wait()
		}
		return cmd.ProcessState.ExitCode()
	}
	n.Cleanup(func() { end(os.Kill) })
	return func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			n.Fatal(err)
		}
		return string(text)
	}, func() int { return end(os.Interrupt) }
}

// ask runs a command with JSON output.
func ask[T any](n *node, args ...string) T { n.Helper(); return harness.Ask[T](n.harness(), args...) }
