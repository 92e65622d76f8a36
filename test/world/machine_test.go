package world

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
	"github.com/criguard/criguard/test/node/scenario"
)

// A virtual node has nodeDisk and nodeInodes. Its system takes about a third to a half of what it has; the exact amounts differ
// from node to node, and no scenario depends on them.
const (
	nodeDisk, nodeInodes      = gib, 20480
	systemDisk, systemInodes  = 550 * mib, 11000
	systemMemory, systemCache = 300 * mib, 150 * mib
)

// How much a workload without a rate takes per second, where an emulated processor sets the limit: MiB of memory and of a disk,
// files, and processes.
const fastHog, fastFill, fastInodes, fastForks = 3000, 4000, 3000, 100

// threads is how many tasks each process of a fork bomb has, see test/lab/workload.
const threads = 5

// systemd starts a program again so long after its end (RestartSec).
const containerdBack, criguardBack = 5 * time.Second, 2 * time.Second

// nodeMachine is a world as the machine of a virtual node. It understands the commands of the scenarios that it plays, and
// fails all others. It implements [scenario.Machine].
type nodeMachine struct {
	world    *World
	client   *control.Client
	over     chan struct{}                               // closed when the world has ended
	config   string                                      // the content of criguard's configuration file
	pods     map[string]*pod                             // by the ID of the sandbox
	primed   map[string]func()                           // what pods do once their triggers exist
	files    map[string]int64                            // that take so many bytes of the disk
	begin    func(m *nodeMachine, p *pod, do func(*pod)) // has a pod do its work
	thaw     func()                                      // lets the frozen runtime go on
	restarts int                                         // of criguard, by systemd
}

var _ scenario.Machine = (*nodeMachine)(nil)

func newNodeMachine(t *testing.T, p scenario.Profile) *nodeMachine {
	t.Helper()
	dialect := critest.Containerd16
	if p.Containerd == 2 {
		dialect = critest.Containerd2
	}
	w := New(t, p.Cgroup == 1, int64(p.MemoryMiB)*mib, dialect)
	w.outside, w.cache = systemMemory, systemCache
	w.disk.total, w.disk.inodes, w.disk.others = nodeDisk, nodeInodes-systemInodes, systemInodes
	w.disk.other.Store(systemDisk)
	m := &nodeMachine{world: w, over: make(chan struct{}), pods: map[string]*pod{}, primed: map[string]func(){}, files: map[string]int64{}}
	m.begin = func(_ *nodeMachine, p *pod, do func(*pod)) { do(p) }
	m.client = control.NewClientOver(rundir.Dir("/run/criguard"), func(ctx context.Context, path string) (net.Conn, error) {
		var s *service
		if err := m.visit(func(w *World) { s = w.service }); err != nil {
			return nil, err
		}
		if s == nil {
			return nil, &net.OpError{Op: "dial", Net: "unix", Err: net.ErrClosed}
		}
		return s.control.dial(ctx, path)
	})
	return m
}

// visit has the world do something.
func (m *nodeMachine) visit(do func(*World)) error {
	if !m.world.Visit(m.over, do) {
		return errors.New("memory has run out")
	}
	return nil
}

// expect lets the checks of a world know the thresholds and the budget of the service's configuration.
func (w *World) expect() {
	w.tb.Helper()
	cfg, err := w.load(w.service, w.settings)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.plenty = w.plenty || cfg.Budget.Hard.Burst >= 100
	for _, t := range cfg.Eviction.Thresholds {
		widen := func(to *int64, capacity int64) { *to = max(*to, t.Value.Of(capacity)) }
		switch s := t.Signal; {
		case s == policy.MemoryAvailable && t.Kind == policy.Soft:
			widen(&w.soft, w.capacity)
		case s == policy.MemoryAvailable:
			widen(&w.hard, w.capacity)
		case s == policy.SwapAvailable:
			widen(&w.swapShort, w.swap)
		case s == policy.PIDAvailable:
			widen(&w.pids, w.taskLimit)
		case s.Resource() == policy.ResourceDisk:
			widen(&w.free.bytes, w.disk.total)
		case s.Resource() == policy.ResourceInodes:
			widen(&w.free.inodes, w.disk.inodes+w.disk.others)
		}
	}
}

// RunPod implements [scenario.Machine].
func (m *nodeMachine) RunPod(_ context.Context, spec lab.PodSpec) (*lab.RunningPod, error) {
	spec = spec.Complete()
	p := &pod{spec: critest.PodSpec{Name: spec.Name, Namespace: spec.Namespace, QoS: string(spec.QoS)}, used: mib, protected: spec.Namespace == "kube-system"}
	for _, c := range spec.Containers {
		adj := lab.OOMScoreAdj(spec.QoS, spec.Critical, c.MemoryRequest, m.world.capacity)
		p.spec.Containers = append(p.spec.Containers, critest.ContainerSpec{Name: c.Name, MemoryLimit: c.MemoryLimit, OOMScoreAdj: adj})
		p.limit += c.MemoryLimit
	}
	do, when, err := workload(p, spec.Containers[0].Args)
	if err != nil {
		return nil, err
	}
	away := false
	err = m.visit(func(w *World) {
		if away = w.away; away {
			return
		}
		w.addPod(p)
		w.logf("%s starts: %q", p, spec.Containers[0].Args)
		m.pods[p.ID] = p
		if when == "" {
			m.begin(m, p, do)
			return
		}
		m.primed[path.Base(when)] = func() { m.begin(m, p, do) }
	})
	if err != nil {
		return nil, err
	}
	if away {
		return nil, errors.New("the runtime does not run")
	}
	spec.UID = p.UID
	running := &lab.RunningPod{PodSpec: spec, SandboxID: p.ID, CgroupParent: p.CgroupParent}
	for i, c := range p.Containers {
		running.Containers = append(running.Containers, lab.RunningContainer{ContainerSpec: spec.Containers[i], ID: c.ID, Cgroup: c.Cgroup})
	}
	return running, nil
}

// workload returns what the program of test/lab/workload does with these arguments to the pod, and the file that it awaits first.
// What a pod takes without end is more than the node has.
func workload(p *pod, args []string) (do func(*pod), when string, err error) {
	mode, flags := args[0], flag.NewFlagSet(args[0], flag.ContinueOnError)
	size, rate, delay := flags.Int64("mib", 64, ""), flags.Int64("rate", 0, ""), flags.Duration("term-delay", 0, "")
	flags.StringVar(&when, "when", "", "")
	for _, name := range []string{"path", "dir", "count"} {
		flags.String(name, "", "")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return nil, "", err
	}
	if !slices.Contains([]string{"pause", "ignore-term", "hog", "fill", "inodes", "fork"}, mode) {
		return nil, "", fmt.Errorf("the world has no workload %q", args)
	}
	p.spec.Containers[0].IgnoreTERM = *delay > 0 || mode == "ignore-term"
	return func(p *pod) {
		p.leaks = time.Now()
		switch mode {
		case "hog":
			p.rate, p.most = cmp.Or(*rate, fastHog)*mib, p.used+*size*mib
		case "fill":
			p.writes = cmp.Or(*rate, fastFill) * mib
		case "inodes": // of empty files, but for one byte each
			p.writes, p.fileSize = cmp.Or(*rate, fastInodes), 1
		case "fork":
			p.forks = cmp.Or(*rate, fastForks) * threads
		}
	}, when, nil
}

// RemovePod implements [scenario.Machine].
func (m *nodeMachine) RemovePod(_ context.Context, running *lab.RunningPod) error {
	var p *pod
	err := m.visit(func(w *World) {
		if p = m.pods[running.SandboxID]; p.runs() {
			w.remove(p)
		} else {
			w.forget(p)
		}
	})
	for has := true; has && err == nil; time.Sleep(50 * time.Millisecond) {
		err = m.visit(func(w *World) { has = w.runtime.Has(p.ID) })
	}
	return err
}

// Serves implements [scenario.Machine].
func (m *nodeMachine) Serves(context.Context) (serves bool) {
	_ = m.visit(func(w *World) { serves = !w.away })
	return serves
}

// PID implements [scenario.Machine]. There are no processes, so that each container has the same one.
func (m *nodeMachine) PID(context.Context, string) (int, error) { return 1, nil }

// Processes implements [scenario.Machine].
func (m *nodeMachine) Processes(cgroup string) (pids []int) {
	_ = m.visit(func(w *World) {
		for _, p := range w.pods {
			if !p.gone && p.Containers[0].Cgroup == cgroup {
				pids = []int{1}
			}
		}
	})
	return pids
}

// KernelKills implements [scenario.Machine]. If memory runs out, the world ends.
func (m *nodeMachine) KernelKills() int { return 0 }

// Remains implements [scenario.Machine].
func (m *nodeMachine) Remains() (ids []string, err error) {
	err = m.visit(func(w *World) {
		for id := range m.pods {
			if w.runtime.Has(id) {
				ids = append(ids, id)
			}
		}
	})
	return ids, err
}

// Write implements [scenario.Machine].
func (m *nodeMachine) Write(name, text string) error {
	switch dir, base := path.Split(name); dir {
	case "/etc/criguard/":
		m.config = text
	case "/run/trigger/":
		return m.visit(func(*World) { m.primed[base]() })
	case "/etc/systemd/system.conf.d/": // limits of systemd, which the world does not have
	default:
		return fmt.Errorf("the world has no file %s", name)
	}
	return nil
}

// Shell implements [scenario.Machine].
func (m *nodeMachine) Shell(command string) (out string, err error) {
	ctx := context.Background()
	switch command {
	case "criguard reload --now":
		_, err := m.client.Command(ctx, api.Command{Command: api.CommandReload, Now: true})
		return "", err
	case "criguard drain --grace 2s --yes --timeout 2m":
		return "", m.drain(ctx, 2*time.Second, 2*time.Minute)
	case "criguard undrain":
		_, err := m.client.Command(ctx, api.Command{Command: api.CommandUndrain})
		return "", err
	}
	matches := func(pattern string) []string {
		return regexp.MustCompile(`^(?:` + pattern + `)$`).FindStringSubmatch(command)
	}
	for pattern, act := range nodeActs {
		if args := matches(pattern); args != nil {
			return "", m.visit(func(w *World) { act(m, w, args[1:]) })
		}
	}
	for pattern, answer := range nodeQueries {
		if args := matches(pattern); args != nil {
			return out, errors.Join(m.visit(func(w *World) { out, err = answer(m, w, args[1:]) }), err)
		}
	}
	return "", fmt.Errorf("the world does not understand the command %q", command)
}

// nodeQueries are the commands of scenarios whose output they read: patterns of a whole command, and its output.
var nodeQueries = map[string]func(m *nodeMachine, w *World, args []string) (string, error){
	`systemctl show -p NRestarts criguard`: func(m *nodeMachine, _ *World, _ []string) (string, error) {
		return fmt.Sprint("NRestarts=", m.restarts), nil
	},
	`systemctl show -p MainPID --value criguard`: func(_ *nodeMachine, w *World, _ []string) (string, error) {
		if w.service == nil {
			return "0", nil
		}
		return fmt.Sprint(len(w.services)), nil
	},
	`systemctl is-active (\S+) \|\| true`: func(_ *nodeMachine, w *World, args []string) (string, error) {
		if args[0] == "criguard" && w.service == nil || args[0] == "containerd" && w.away {
			return "activating", nil
		}
		return "active", nil
	},
	`journalctl -u criguard \| grep '(.*)' \| grep -q '(.*)'`: func(_ *nodeMachine, w *World, args []string) (string, error) {
		for line := range strings.Lines(w.story.String()) {
			if strings.Contains(line, args[0]) && strings.Contains(line, args[1]) {
				return "", nil
			}
		}
		return "", errors.New("no such line in the journal")
	},
	`ctr -n k8s\.io images list -q name~=registry\.example`: func(_ *nodeMachine, w *World, _ []string) (string, error) {
		var ids []string
		for _, img := range w.images {
			ids = append(ids, img.id)
		}
		return strings.Join(ids, "\n"), nil
	},
	`criguard explain (\d+)`: func(_ *nodeMachine, _ *World, args []string) (string, error) { return "pass " + args[0], nil },
}

// nodeActs are the other commands of scenarios: patterns of a whole command, and what it does to the world.
var nodeActs = map[string]func(m *nodeMachine, w *World, args []string){
	`systemctl restart criguard`: func(m *nodeMachine, w *World, _ []string) { m.restart(w) },
	`systemctl reload criguard`: func(m *nodeMachine, w *World, _ []string) {
		_, err := w.load(w.service, []string{m.config})
		w.Reload(err != nil, m.config)
		w.expect()
	},
	`systemctl kill -s KILL --kill-who=main criguard`: func(m *nodeMachine, w *World, _ []string) {
		w.Kill()
		m.restarts++
		w.At(w.Now()+criguardBack, (*World).Start)
	},
	`systemctl kill -s KILL --kill-who=main containerd`: func(_ *nodeMachine, w *World, _ []string) {
		w.stopRuntime()
		w.At(w.Now()+containerdBack, (*World).startRuntime)
	},
	`systemctl restart containerd`: func(_ *nodeMachine, w *World, _ []string) {
		w.stopRuntime()
		w.startRuntime()
	},
	`systemctl stop containerd && systemctl restart criguard`: func(m *nodeMachine, w *World, _ []string) {
		w.stopRuntime()
		m.restart(w)
	},
	`systemctl start containerd`: func(_ *nodeMachine, w *World, _ []string) { w.startRuntime() },
	`systemctl kill -s STOP --kill-who=main containerd`: func(m *nodeMachine, w *World, _ []string) {
		w.logf("the runtime hangs")
		m.thaw = w.runtime.Hang()
	},
	`systemctl kill -s CONT --kill-who=main containerd`: func(m *nodeMachine, w *World, _ []string) {
		m.thaw()
		w.logf("the runtime goes on")
	},
	`systemd-run -q -u hog -p OOMScoreAdjust=-500 \S+ hog -mib (\d+) -rate (\d+)`: func(_ *nodeMachine, w *World, args []string) {
		size := number(args[0]) * mib
		w.hog = number(args[1]) * mib
		w.logf("a process outside the pods takes %d MiB/s", w.hog/mib)
		w.When(func() bool { return w.hog == 0 || w.hogTook >= size }, w.Now(), shortStep, func(w *World) { w.hog = 0 })
	},
	`systemctl stop hog`: func(_ *nodeMachine, w *World, _ []string) {
		w.logf("the process outside the pods has ended")
		w.outside -= w.hogTook
		w.hog, w.hogTook = 0, 0
	},
	`modprobe zram && echo (\d+)M >/sys/block/zram0/disksize && mkswap -q /dev/zram0 && swapon /dev/zram0`: func(_ *nodeMachine, w *World, args []string) {
		w.swap = number(args[0]) * mib
	},
	`modprobe zram && .* && dd if=/dev/urandom of=/dev/zram0 bs=1M count=(\d+) .*`: func(_ *nodeMachine, w *World, args []string) {
		w.uncharged = number(args[0]) * mib
	},
	`systemd-run -q -u slow -p IOReadBandwidthMax=.*`: func(_ *nodeMachine, w *World, _ []string) { w.slowed[onIO] = 0.9 },
	`systemctl stop slow`:                             func(_ *nodeMachine, w *World, _ []string) { w.slowed[onIO] = 0 },
	`PATH=.* images import \S+/(\S+)`: func(_ *nodeMachine, w *World, args []string) {
		for _, img := range scenario.Images()[args[0]] {
			id := w.runtime.AddImage(critest.ImageSpec{Tags: []string{img.Name}, Size: img.ExtraBytes})
			w.images = append(w.images, image{id, w.time()})
		}
	},
	`sysctl -q -w kernel\.pid_max=(\d+)`: func(_ *nodeMachine, w *World, args []string) { w.taskLimit = number(args[0]) },
	`fallocate -l (\d+) (/\S+)`: func(m *nodeMachine, w *World, args []string) {
		m.files[args[1]] = number(args[0])
		w.disk.other.Add(m.files[args[1]])
	},
	`rm (/\S+)`: func(m *nodeMachine, w *World, args []string) {
		w.disk.other.Add(-m.files[args[0]])
		delete(m.files, args[0])
	},
	`systemctl daemon-reload|mkdir -p /run/trigger && rm -f \S+`: func(*nodeMachine, *World, []string) {},
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// restart restarts the service with the configuration in its file.
func (m *nodeMachine) restart(w *World) {
	w.Stop()
	w.settings = []string{m.config}
	w.Start()
	w.expect()
}

func (w *World) stopRuntime() {
	w.logf("the runtime ends")
	w.away = true
	w.runtime.Stop()
}

func (w *World) startRuntime() {
	w.away = false
	w.runtime.Start()
	w.logf("the runtime is back")
}

// drain drains the node and waits for it.
func (m *nodeMachine) drain(ctx context.Context, grace, within time.Duration) error {
	err := m.visit(func(w *World) {
		for _, p := range w.pods {
			p.asked = true
		}
	})
	if err != nil {
		return err
	}
	if _, err := m.client.Command(ctx, api.Command{Command: api.CommandDrain, Grace: api.Duration(grace)}); err != nil {
		return err
	}
	for begin := time.Now(); time.Since(begin) < within; time.Sleep(500 * time.Millisecond) {
		if plan, err := m.client.Drain(ctx); err != nil || plan.Left == 0 {
			return err
		}
	}
	return errors.New("not drained yet")
}
