package fleet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/client/agenttest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/test/etcdtest"
)

// Amounts of a node's filesystem, relative to what is available while all its pods run: the soft threshold is met even
// while four of them are replaced, and a pod that grows by hardGrowth meets the hard one even then.
const (
	softAbove  = 9 * mib
	hardBelow  = 8 * mib
	hardGrowth = 20 * mib
)

// endNode is a node of the fleet: a guard and its agent, which are processes of their own.
type endNode struct {
	testing.TB
	*endKubelet
	name, zone string
	root       string // the kubelet's
	layout     string // the tables [runtime] and [node]
	criguard   string // the program
	dir        string // of the configuration, the sockets, the state and the logs
	fleet      bool   // the guard asks the fleet
	soft       bool   // the soft threshold is in force
	available  int64  // bytes of the filesystem while all pods run
	programs   []*exec.Cmd

	mu    sync.Mutex
	alone []span // when the agent was alone
}

// config returns the configuration of the guard.
func (n *endNode) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s[fleet]\nenabled = %t\n", n.layout, n.fleet)
	b.WriteString("[budget]\nhard = {burst = 10, every = \"10s\"}\nsoft = {burst = 2, every = \"1m\"}\nper_hour = 1000\n")
	b.WriteString("[history]\npasses = 10000\n[containers]\ngc = false\n[images]\nprune = \"never\"\n[eviction]\ninterval = \"2s\"\nmax_pod_grace_period = \"1s\"\n[eviction.hard]\n")
	for _, signal := range []string{"memory.available", "pid.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"} {
		fmt.Fprintf(&b, "%q = \"0%%\"\n", signal)
	}
	fmt.Fprintf(&b, "\"nodefs.available\" = \"%d\"\n", n.available-hardBelow)
	if n.soft {
		fmt.Fprintf(&b, "[eviction.soft]\n\"nodefs.available\" = \"%d\"\n[eviction.soft_grace_period]\n\"nodefs.available\" = \"1s\"\n", n.available+softAbove)
	}
	return b.String()
}

func (n *endNode) write(name, text string) error {
	return os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600)
}

// startGuard starts the guard, without the soft threshold, in a directory of its own.
func (n *endNode) startGuard(fleet bool) {
	n.Helper()
	n.fleet, n.soft, n.dir = fleet, false, shortDir(n)
	n.Cleanup(func() {
		if n.Failed() {
			n.Log(n.logs())
		}
	})
	etcdtest.Wait(n, func() error {
		if !n.complete() {
			return fmt.Errorf("%s: not all pods run", n.name)
		}
		return nil
	})
	if err := n.shrink(); err != nil {
		n.Fatal(err)
	}
	n.available = n.space()
	if err := n.write("config.toml", n.config()); err != nil {
		n.Fatal(err)
	}
	n.start("guard", "run", "--config", filepath.Join(n.dir, "config.toml"), "--run-dir", n.dir)
	etcdtest.Wait(n, func() error {
		st, err := n.guard().Status(n.Context())
		if err == nil && st.Pods != podsPerNode {
			err = fmt.Errorf("%s: the guard knows %d pods", n.name, st.Pods)
		}
		return err
	})
}

// startAgent starts the agent.
func (n *endNode) startAgent(endpoints []string, tls fleet.TLS) {
	n.Helper()
	list, err := json.Marshal(endpoints)
	if err != nil {
		n.Fatal(err)
	}
	text := fmt.Sprintf("fleet = %q\nzone = %q\nnode = %q\nendpoints = %s\n[tls]\nca = %q\ncert = %q\nkey = %q\n",
		fleetName, n.zone, n.name, list, tls.CA, tls.Cert, tls.Key)
	if err := n.write("fleet.toml", text); err != nil {
		n.Fatal(err)
	}
	n.start("agent", "fleet", "agent", "--config", filepath.Join(n.dir, "fleet.toml"), "--run-dir", n.dir, "--socket", n.socket())
}

func (n *endNode) socket() string { return rundir.Dir(n.dir).FleetSocket() }

func (n *endNode) guard() *control.Client { return control.NewClient(rundir.Dir(n.dir)) }

// start starts a program of the node.
func (n *endNode) start(name string, args ...string) {
	n.Helper()
	log, err := os.Create(filepath.Join(n.dir, name+".log"))
	if err != nil {
		n.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(n.criguard, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.programs = append(n.programs, cmd)
}

// end ends the programs of the node, the agent before the guard.
func (n *endNode) end() {
	n.Helper()
	for len(n.programs) > 0 {
		last := len(n.programs) - 1
		cmd := n.programs[last]
		n.programs = n.programs[:last]
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			n.Errorf("%s: %s: %v", n.name, strings.Join(cmd.Args, " "), err)
		}
	}
}

// push puts the soft threshold in force, or withdraws it.
func (n *endNode) push(soft bool) error {
	n.soft = soft
	if err := n.write("config.toml", n.config()); err != nil {
		return err
	}
	_, err := n.guard().Command(n.Context(), api.Command{Command: api.CommandReload, Now: true})
	return err
}

// space returns the available bytes of the node's filesystem.
func (n *endNode) space() int64 {
	n.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(n.root, &fs); err != nil {
		n.Fatal(err)
	}
	return int64(fs.Bavail) * int64(fs.Bsize) //nolint:unconvert // 32 bits on arm
}

// passes returns all passes that did something, oldest first.
func (n *endNode) passes() []api.Pass {
	n.Helper()
	passes, err := n.guard().History(n.Context(), 0)
	if err != nil {
		n.Fatalf("%s: %v", n.name, err)
	}
	return passes
}

// watch records when the agent is alone, until ctx ends.
func (n *endNode) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for lonely := false; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s, err := agenttest.Status(n.Context(), n.socket())
		now := cgroup.BootTime()
		if err != nil {
			continue // the machine is busy: the next answer shows for how long the agent has been alone
		}
		n.mu.Lock()
		if s.AloneFor > 0 && !lonely {
			n.alone = append(n.alone, span{from: now - time.Duration(s.AloneFor)})
		}
		if lonely = s.AloneFor > 0; lonely {
			n.alone[len(n.alone)-1].to = now
		}
		n.mu.Unlock()
	}
}

// hardStop lets a pod fill the node's filesystem, and returns how long it took until the guard stopped it. It waits for
// the end of a soft stop in flight: its effect delays a hard one of the same pool, with a fleet and without.
func (n *endNode) hardStop() (time.Duration, error) {
	n.Helper()
	etcdtest.Wait(n, func() error {
		st, err := n.guard().Status(n.Context())
		if err == nil && len(st.InFlight) > 0 {
			err = fmt.Errorf("%s: a stop is in flight", n.name)
		}
		return err
	})
	for deadline, file, begin := time.After(time.Minute), "", cgroup.BootTime(); ; {
		_, err := os.Stat(file)
		for _, p := range n.passes() {
			hard := p.Stop != nil && p.Stop.Kind == "hard" || p.Escalated != ""
			if hard && time.Duration(p.At) > begin {
				return time.Duration(p.At) - begin, nil
			}
		}
		if err != nil { // none has grown yet, or a soft stop has just taken it
			begin = cgroup.BootTime()
			if file, err = n.grow(hardGrowth); err != nil {
				return 0, fmt.Errorf("%s: %w", n.name, err)
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			return 0, fmt.Errorf("%s: no hard stop within a minute", n.name)
		}
	}
}

// logs returns the end of the logs of the node's programs.
func (n *endNode) logs() string {
	var b bytes.Buffer
	for _, name := range []string{"guard", "agent"} {
		text, err := os.ReadFile(filepath.Join(n.dir, name+".log"))
		if err == nil {
			fmt.Fprintf(&b, "%s of %s:\n%s", name, n.name, text[max(len(text)-4000, 0):])
		}
	}
	return b.String()
}

// shortDir returns a directory whose path leaves room for a socket's name.
func shortDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "criguard")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
