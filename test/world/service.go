package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/machine"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/systemd"
)

// patience is how long a service may take to end.
const patience = 30 * time.Second

// service is a run of criguard.
type service struct {
	dir     string        // run directory and history
	config  string        // file
	began   time.Duration // at this time of the world
	away    bool          // the directory cannot be used
	saved   time.Duration // what was not saved meanwhile is saved again until then
	control *pipe
	kernel  string // whose files it reads
	reload  chan func() (config.Config, error)
	end     context.CancelFunc
	ended   chan error
	runtime string // what it logged of that last, see said
	mu      sync.Mutex
	cut     bool // killed: the world no longer listens to it
	cutAt   time.Duration
	conns   []net.Conn // to the runtime
}

// isCut reports whether it was killed.
func (s *service) isCut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

// firstSample is how long after its start a service needs to see who grows: a listing, and a rate over a second.
const firstSample = 2 * time.Second

// Start starts a service.
func (w *World) Start() {
	w.tb.Helper()
	s := &service{dir: w.newDir(), config: filepath.Join(w.newDir(), "config.toml"), began: w.Now()}
	if w.state != "" {
		if err := copyTree(s.dir, w.state); err != nil {
			w.tb.Fatal(err)
		}
	}
	s.kernel = w.kernel.root
	cfg, err := w.load(s, w.settings)
	if err != nil {
		w.tb.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	s.end, s.ended, s.control, s.reload = end, make(chan error, 1), newPipe(), make(chan func() (config.Config, error), 1)
	w.services = append(w.services, s)
	w.service, w.shortAt, w.fewAt = s, w.Now(), w.Now()
	w.uses.Store(nodeProcessors)
	if w.sleptOff { // the samples of the service before are too old
		w.sleptOff, w.sampledFrom = false, w.Now()+firstSample
	}
	w.logf("criguard starts")
	m := w.machine(s)
	log := w.log(s)
	go func() {
		s.ended <- guard.Serve(ctx, guard.ServiceOptions{
			Config: cfg, Dir: rundir.Dir(s.dir), Version: "world", Notifier: &systemd.Notifier{}, Log: log, Machine: m,
			Load: func() (config.Config, error) { return w.load(s, w.settings) }, Reload: s.reload,
		})
	}()
}

// load reads the configuration from a file, as a service does.
func (w *World) load(s *service, lines []string) (config.Config, error) {
	text := fmt.Sprintf("node = {proc = %q, sys = %q, root_dir = %q, pod_log_dir = %q}\nruntime.endpoint = %q\n%s\n", filepath.Join(s.kernel, "proc"),
		filepath.Join(s.kernel, "sys"), filepath.Join(s.kernel, "kubelet"), w.disk.logs.dir, w.runtime.Endpoint(), strings.Join(lines, "\n"))
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		return config.Config{}, err
	}
	return config.Load(s.config)
}

// machine is the machine of a service.
func (w *World) machine(s *service) machine.Machine {
	return machine.Machine{
		BootTime: func() time.Duration {
			w.awake.note(w.Now(), "clock")
			return time.Hour + w.time()
		},
		NewWaker: func(cgroup.Layout) (node.Waker, error) {
			w.waker = newWaker(w.v1)
			w.waker.deaf, w.waker.overflows = w.deaf, w.overflows
			return w.waker, nil
		},
		Cgroups: func(l cgroup.Layout) reclaim.Cgroups { return cgroups{l, w.kernel, s.kernel} },
		Statfs: func(path string) (cgroup.Space, error) {
			w.awake.note(w.Now(), "disk")
			return w.disk.statfs(path)
		},
		Tree:       w.disk.tree,
		Mounts:     w.kernel.overlayMounts,
		LockMemory: func() error { return nil },
		Linger:     func() { time.Sleep(time.Nanosecond) }, // virtual time goes on when all goroutines wait
		FreeMemory: func() {},                              // the process holds the world, too
		Processors: func(n int) (before int) { return int(w.uses.Swap(int64(n))) },
		LockNode:   func(rundir.Dir, ...string) (func(), []string, error) { return func() {}, nil, nil },
		Runtime: cri.Network{DialSocket: func(ctx context.Context, path string) (net.Conn, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.cut {
				return nil, errors.New("killed")
			}
			conn, err := w.socket.dial(ctx, path)
			if err == nil {
				s.conns = append(s.conns, conn)
			}
			return conn, err
		}},
		Listen: func(d rundir.Dir) (net.Listener, error) {
			// The service looks whether its socket is still there.
			return control.NewLimitListener(s.control), os.WriteFile(d.Socket(), nil, 0o600)
		},
	}
}

// awake is when the service did something that the world sees, and what. The zero value is ready to use.
type awake struct {
	mu    sync.Mutex
	times map[time.Duration]bool
	what  map[string]int
}

func (a *awake) note(at time.Duration, what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.times == nil {
		a.times, a.what = map[time.Duration]bool{}, map[string]int{}
	}
	a.times[at] = true
	a.what[what]++
}

// take returns at how many times the service was awake since the last call, and what it did.
func (a *awake) take() (times int, what map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	times, what = len(a.times), a.what
	a.times, a.what = nil, nil
	return times, what
}

// Command sends a command to the service and does not wait for the answer. done is called if the service has executed it.
func (w *World) Command(c api.Command, done func()) {
	s := w.service
	if s == nil {
		return
	}
	w.logf("operator: %s %s", c.Command, c.Pod)
	client := control.NewClientOver(rundir.Dir(s.dir), s.control.dial)
	w.asking.Go(func() {
		a, err := client.Command(context.Background(), c)
		if err != nil {
			w.logf("operator: %s: %v", c.Command, err)
			return
		}
		w.logf("operator: %s: %s", c.Command, a.Message)
		done()
	})
}

// Prune has the service prune and does not wait for the end.
func (w *World) Prune(o api.PruneOptions) {
	s := w.service
	if s == nil {
		return
	}
	w.logf("operator: prune %+v", o)
	if o.IgnoreAge && o.Images && !o.DryRun {
		w.keeps = 0
	}
	client := control.NewClientOver(rundir.Dir(s.dir), s.control.dial)
	w.asking.Go(func() {
		reports, err := client.Prune(context.Background(), o)
		removed := 0
		for i := range reports {
			removed += len(reports[i].Removed)
		}
		w.logf("operator: prune: %d removed, error %v", removed, err)
	})
}

// Reload has the service reload a configuration of these lines. A bad one is corrected before the next start.
func (w *World) Reload(bad bool, lines ...string) {
	w.logf("operator: reload with %q", lines)
	if !bad {
		w.settings = lines
	}
	if s := w.service; s != nil {
		s.reload <- func() (config.Config, error) { return w.load(s, lines) }
	}
}

// savesAgain is how long after its disk works again a service may need to save everything.
const savesAgain = 11 * time.Second

// BreakDisk makes the directory of the service's files unusable for a while: nothing can be written or read.
func (w *World) BreakDisk(length time.Duration) {
	s := w.service
	if s == nil || s.away {
		return
	}
	w.logf("the disk of the service's files is broken for %v", length)
	s.away = true
	if err := errors.Join(os.Rename(s.dir, s.dir+"-away"), os.WriteFile(s.dir, nil, 0o600)); err != nil {
		w.tb.Fatal(err)
	}
	w.At(w.Now()+length, func(w *World) { w.mend(s) })
}

// mend makes the directory of a service usable again.
func (w *World) mend(s *service) {
	if !s.away {
		return
	}
	w.logf("the disk of the service's files works again")
	s.away, s.saved = false, w.Now()+savesAgain
	if err := errors.Join(os.Remove(s.dir), os.Rename(s.dir+"-away", s.dir)); err != nil {
		w.tb.Fatal(err)
	}
}

// Kill ends the service without notice, as SIGKILL would: what it has not written is lost, and what it does from now on
// reaches nobody. A service that has not saved everything because its disk was broken stays: that would be lost, rightly.
func (w *World) Kill() {
	s := w.service
	if s == nil || s.away || w.Now() < s.saved {
		return
	}
	w.logf("criguard is killed")
	dir := w.newDir()
	if err := copyTree(dir, s.dir); err != nil {
		w.tb.Fatal(err)
	}
	// What still runs on the old files no longer sees or does anything.
	if err := w.move(w.newDir()); err != nil {
		w.tb.Fatal(err)
	}
	s.mu.Lock()
	s.cut, s.cutAt = true, w.Now()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.end()
	w.seeStops() // that it has begun at this very moment
	w.state, w.service = dir, nil
}

// Stop ends the service as systemctl stop does.
func (w *World) Stop() {
	w.tb.Helper()
	s := w.service
	if s == nil {
		return
	}
	w.mend(s)
	w.askedAt = w.Now()
	w.logf("criguard is asked to end")
	s.end()
	select {
	case err := <-s.ended:
		w.logf("criguard ends, error %v", err)
		if err != nil {
			w.violate("the service ended with an error: %v", err)
		}
	case <-time.After(patience):
		w.violate("the service did not end within %v", patience)
	}
	w.state, w.service = s.dir, nil
}
