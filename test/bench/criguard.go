package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// criguard is this project's guard, run as its unit runs it: with a nice value of −10, and timers that may be late.
type criguard struct {
	bench    *bench
	direct   string        // eviction.direct_kill
	endpoint string        // the runtime's endpoint
	signal   policy.Signal // of the threshold that is armed
	dir      string
	cmd      *exec.Cmd
	ended    chan error
	client   *control.Client
	more     string          // more configuration
	since    uint64          // the last recorded pass at the time of arming
	recorded []api.Pass      // the recorded passes of the last try
	passes   []time.Duration // durations of the passes that stopped a pod

	mu  sync.Mutex
	log bytes.Buffer
}

// The nice value and the slack of timers in systemd/criguard.service.
const (
	unitNice  = "-10"
	unitSlack = time.Millisecond
)

// Ways to kill (eviction.direct_kill): directly at once, or only through the runtime.
const (
	killDirect = "hard-memory"
	throughCRI = "never"
)

// startCriguard starts a guard with the given way to kill and the given endpoint, and returns once
// it has listed the pods. A secluded guard does not see other programs' mounts, each of which would
// trigger a pod listing.
func (b *bench) startCriguard(ctx context.Context, direct, endpoint string, secluded bool) (*criguard, error) {
	return b.start(ctx, &criguard{bench: b, direct: direct, endpoint: endpoint, signal: policy.MemoryAvailable}, secluded)
}

// startWithoutEvent starts a guard that is armed on a signal for which the kernel has no event.
func (b *bench) startWithoutEvent(ctx context.Context) (*criguard, error) {
	return b.start(ctx, &criguard{bench: b, direct: killDirect, endpoint: b.lab.Endpoint(), signal: policy.MeminfoAvailable}, false)
}

// startConfigured starts a guard with additional configuration.
func (b *bench) startConfigured(ctx context.Context, more string) (*criguard, error) {
	return b.start(ctx, &criguard{
		bench: b, direct: killDirect, endpoint: b.lab.Endpoint(), signal: policy.MemoryAvailable, more: more,
	}, false)
}

func (b *bench) start(ctx context.Context, g *criguard, secluded bool) (_ *criguard, err error) {
	if g.dir, err = os.MkdirTemp(memoryDir(), "criguard-bench-"); err != nil {
		return nil, err
	}
	if err := g.configure(0); err != nil {
		return nil, errors.Join(err, os.RemoveAll(g.dir))
	}
	binary, err := filepath.Abs(b.criguard)
	if err != nil {
		return nil, err
	}
	g.cmd = exec.Command("nice", "-n", unitNice, binary, "run", "--config", g.config(), "--run-dir", g.dir)
	g.cmd.Stderr = g
	if secluded {
		g.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	g.cmd.Env = append(os.Environ(), "GOMEMLIMIT=24MiB") // as in the unit
	if err := startWithSlack(g.cmd, unitSlack); err != nil {
		return nil, errors.Join(fmt.Errorf("start criguard: %w", err), os.RemoveAll(g.dir))
	}
	g.ended = make(chan error, 1)
	go func() { g.ended <- g.cmd.Wait() }()
	g.client = control.NewClient(rundir.Dir(g.dir))
	if err := g.listed(ctx, len(b.pods)); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// startWithSlack starts a program whose timers may be that late. It inherits that from the thread that starts it.
func startWithSlack(cmd *exec.Cmd, slack time.Duration) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	err := cmd.Start()
	return errors.Join(err, unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)) // the thread's own again
}

// memoryDir returns a directory in memory, like /run on a node, or "" if there is none.
func memoryDir() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// Write collects the guard's log.
func (g *criguard) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.Write(b)
}

func (g *criguard) logged() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.String()
}

func (g *criguard) config() string { return filepath.Join(g.dir, "config.toml") }

func (g *criguard) pid() int { return g.cmd.Process.Pid }

// configure writes the configuration.
func (g *criguard) configure(level int64) error {
	l := g.bench.lab
	node := fmt.Sprintf("[runtime]\nendpoint = %q\n[node]\nroot_dir = %q\npod_log_dir = %q\npods_cgroup = %q\n",
		g.endpoint, l.KubeletRoot(), l.PodLogDir(), l.PodsCgroup())
	return os.WriteFile(g.config(), []byte(node+g.rules(level)), 0o600)
}

// rules returns the configuration but for the node. It allows one stop per breach, so that each breach is measured
// separately.
func (g *criguard) rules(level int64) string {
	levels := map[policy.Signal]string{policy.MemoryAvailable: "0%", policy.MeminfoAvailable: "0%"} // off
	if level > 0 {
		levels[g.signal] = fmt.Sprint(level)
	}
	return fmt.Sprintf(`[eviction]
direct_kill = %q

[eviction.hard]
"memory.available" = %q
"meminfo.available" = %q
"nodefs.available" = "0%%"
"nodefs.inodesFree" = "0%%"
"imagefs.available" = "0%%"
"imagefs.inodesFree" = "0%%"

[budget]
hard = {burst = 1000, every = "1ms"}
per_hour = 0
breaker = 0

[backoff]
first = "0s"

[images]
prune = "never"

[history]
dir = %q
%s`, g.direct, levels[policy.MemoryAvailable], levels[policy.MeminfoAvailable], g.dir, g.more)
}

// listed waits until the guard knows the given number of pods.
func (g *criguard) listed(ctx context.Context, pods int) error {
	return g.until(ctx, fmt.Sprintf("criguard to list %d pods", pods), func(st *api.Status) bool {
		return st.Runtime.Up && st.Pods == pods
	})
}

func (g *criguard) until(ctx context.Context, what string, done func(*api.Status) bool) error {
	err := until(ctx, what, func() (bool, error) {
		st, err := g.client.Status(ctx)
		return err == nil && done(&st), err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, g.logged())
	}
	return nil
}

func (g *criguard) name() string {
	switch {
	case g.direct == throughCRI:
		return ours + ", CRI only"
	case g.signal == policy.MeminfoAvailable:
		return withoutEvent
	default:
		return ours
	}
}

// Names in the report: criguard armed on memory.available, for which cgroup v1 has an event, and on meminfo.available,
// for which no kernel has one.
const (
	ours         = "criguard"
	withoutEvent = "criguard, no event"
)

// prepare waits until the guard has listed the hog and forgotten all removed pods.
func (g *criguard) prepare(ctx context.Context, h *hog) error {
	err := until(ctx, "criguard to list the hog", func() (bool, error) {
		r, err := g.client.Rank(ctx, policy.MemoryAvailable)
		has := slices.ContainsFunc(r.Pods, func(v api.RankedView) bool { return v.Sandbox == h.pod.SandboxID })
		return has && len(r.Pods) == len(g.bench.pods)+1, err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, g.logged())
	}
	return nil
}

func (g *criguard) available() (int64, error) {
	if g.signal == policy.MeminfoAvailable {
		return meminfoAvailable(g.bench.node)
	}
	return memoryAvailable(g.bench.node)
}

func (g *criguard) arm(ctx context.Context, level int64) error {
	st, err := g.client.Status(ctx)
	if err != nil {
		return err
	}
	g.since = 0
	if st.LastPass != nil {
		g.since = st.LastPass.ID
	}
	return g.set(ctx, level)
}

// set puts a threshold into force.
func (g *criguard) set(ctx context.Context, level int64) error {
	if err := g.configure(level); err != nil {
		return err
	}
	if _, err := g.client.Command(ctx, api.Command{Command: api.CommandReload, Now: true}); err != nil {
		return fmt.Errorf("reload criguard: %w", err)
	}
	return g.until(ctx, "criguard to reload", func(st *api.Status) bool {
		for _, s := range st.Signals {
			if s.Signal == g.signal {
				return level == 0 && len(s.Thresholds) == 0 ||
					slices.ContainsFunc(s.Thresholds, func(t api.ThresholdStatus) bool { return t.Kind == policy.Hard.String() && t.Amount == level })
			}
		}
		return false
	})
}

func (g *criguard) disarm(ctx context.Context) error {
	if err := g.set(ctx, 0); err != nil {
		return err
	}
	return g.until(ctx, "the stop to settle", func(st *api.Status) bool { return len(st.InFlight) == 0 })
}

func (g *criguard) blamed(ctx context.Context, _ *hog) (string, error) {
	passes, err := g.client.History(ctx, 50)
	if err != nil {
		return "", err
	}
	var names []string
	g.recorded = slices.DeleteFunc(passes, func(p api.Pass) bool { return p.ID <= g.since })
	for i := range g.recorded {
		if p := &g.recorded[i]; p.Stop != nil {
			names = append(names, p.Stop.Pod)
			g.passes = append(g.passes, time.Duration(p.Took))
		}
	}
	return strings.Join(names, ", "), nil
}

// account describes the recorded passes of the last try. A pass that took long has waited for a listing, or had no processor. If it
// was short, but the threshold had been met for long, an earlier pass has stopped nothing.
func (g *criguard) account(crossed time.Duration) string {
	var b strings.Builder
	for i := range g.recorded {
		p := &g.recorded[i]
		fmt.Fprintf(&b, "\n    pass %d, %s after the crossing: woken by %s, took %s", p.ID, tenths(time.Duration(p.At)-crossed), p.Wake, tenths(time.Duration(p.Took)))
		for _, m := range p.Met {
			fmt.Fprintf(&b, "; %s met for %s, %.1f MiB below its target", m.Threshold, m.For, float64(m.Target-m.Available)/mib)
		}
		if p.Held != "" {
			fmt.Fprintf(&b, "; held by %q", p.Why())
		}
		if n := p.Need; n != nil {
			fmt.Fprintf(&b, "; culprit %q, growth %.1f MiB/s of a need of %.1f MiB", n.Culprit, float64(n.CulpritGrowth)/mib, float64(n.Need)/mib)
		}
		if p.Stop != nil {
			fmt.Fprintf(&b, "; stops %s", p.Stop.Pod)
		}
		for i := range p.Settled {
			if r := p.Settled[i].Result; r != nil {
				fmt.Fprintf(&b, "; %s was empty after %s (%s)", p.Settled[i].Pod, tenths(time.Duration(r.EmptiedIn)), r.Method)
			}
		}
	}
	return b.String()
}

// tenths rounds to a tenth of a millisecond.
func tenths(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// close ends the guard.
func (g *criguard) close() error {
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(10*time.Second, func() { _ = g.cmd.Process.Kill() })
	err := <-g.ended
	kill.Stop()
	if err != nil {
		err = fmt.Errorf("end criguard: %w\n%s", err, g.logged())
	}
	return errors.Join(err, os.RemoveAll(g.dir))
}
