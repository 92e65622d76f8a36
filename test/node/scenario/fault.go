package scenario

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// fault is one fault, or one step towards it.
type fault struct {
	name   string
	weight int
	guard  bool              // it ends criguard
	may    func(*storm) bool // whether the fault proves anything now; a shortage without a guard does not
	do     func(*storm)
}

func faultTable() []fault {
	return []fault{
		{"containerd frozen", 2, false, (*storm).serves, func(s *storm) {
			s.Shell("systemctl kill -s STOP --kill-who=main containerd")
			s.lasts("containerd frozen", nil, func() { s.Shell("systemctl kill -s CONT --kill-who=main containerd") })
		}},
		{"containerd restarted", 1, false, (*storm).restartable, func(s *storm) { s.Shell("systemctl restart --no-block containerd") }},
		{"containerd killed", 1, false, (*storm).restartable, func(s *storm) { s.Shell("systemctl kill -s KILL --kill-who=main containerd") }},
		{"shim of a bystander frozen", 1, false, (*storm).started, func(s *storm) { s.freezeShim(s.bystander()) }},
		{"shim of a culprit frozen", 1, false, func(s *storm) bool { return len(s.culprits) > 0 && s.started() }, func(s *storm) {
			s.freezeShim(s.culprits[s.rand.IntN(len(s.culprits))].Pod)
		}},
		{"criguard restarted", 1, true, (*storm).leisure, func(s *storm) { s.Shell("systemctl restart criguard"); s.renewed() }},
		{"criguard killed", 1, true, (*storm).leisure, func(s *storm) {
			s.Shell("systemctl kill -s KILL --kill-who=main criguard")
			s.renewed()
		}},
		{"good reload", 1, false, always, (*storm).reloadGood},
		{"bad reload", 1, false, always, (*storm).reloadBad},
		{"clock jump", 1, false, always, func(s *storm) {
			s.Shell(fmt.Sprintf("date -s @%d", time.Now().Unix()+s.rand.Int64N(2e8)-1e8))
		}},
		{"full disk", 1, false, func(s *storm) bool { return !s.has("full disk", nil) }, (*storm).fillDisk},
		{"hog made", 4, false, (*storm).roomForCulprit, func(s *storm) { s.prime(false) }},
		{"fork bomb made", 2, false, (*storm).roomForCulprit, func(s *storm) { s.prime(true) }},
		{"culprit let", 6, false, func(s *storm) bool { return s.waiting() != nil && s.known() }, func(s *storm) {
			c := s.waiting()
			s.note("%s at %d a second", c.ID(), c.rate)
			c.let = time.Now()
			c.Pod.stopped = true
			s.Write(c.trigger, "")
		}},
		{"culprit removed", 3, false, func(s *storm) bool { return s.ended() != nil && s.serves() }, func(s *storm) { s.bury(s.ended()) }},
		{"pod came", 1, false, func(s *storm) bool { return len(s.visitors) < 2 && s.calmEnough() }, func(s *storm) {
			if p := s.start("visitor", "hog", "-mib", "8"); p != nil {
				s.visitors = append(s.visitors, p)
			}
		}},
		{"pod went", 1, false, func(s *storm) bool {
			return len(s.visitors) > 0 && !s.has(shimFrozen, s.visitors[0]) && s.calmEnough()
		}, func(s *storm) {
			s.remove(s.visitors[0])
			s.visitors = s.visitors[1:]
		}},
		{"burst of clients", 1, false, always, (*storm).burst},
	}
}

const shimFrozen = "shim frozen"

func always(*storm) bool { return true }

// lasts ends a fault after a while.
func (s *storm) lasts(name string, of *Pod, end func()) {
	s.lasting = append(s.lasting, lasting{name, of, time.Now().Add(s.between(2*time.Second, 10*time.Second)), end})
}

// has reports whether a fault is in progress.
func (s *storm) has(name string, of *Pod) bool {
	for _, l := range s.lasting {
		if l.name == name && l.of == of {
			return true
		}
	}
	return false
}

// serves reports whether the runtime answers.
func (s *storm) serves() bool {
	if s.has("containerd frozen", nil) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.lab.Serves(ctx)
}

// started reports whether the runtime has started, even if it is frozen now.
func (s *storm) started() bool { return s.has("containerd frozen", nil) || s.serves() }

// restartable reports whether a restart of the runtime would leave the pods alone: if a shim does
// not answer when containerd starts, containerd considers it dead and ends its pod.
func (s *storm) restartable() bool {
	return !slices.ContainsFunc(s.lasting, func(l lasting) bool { return l.name == shimFrozen }) && s.serves()
}

// calmEnough reports whether a pod can be started and removed.
func (s *storm) calmEnough() bool {
	return s.leisure() && !s.has("full disk", nil) && s.serves()
}

// leisure reports whether the node can do without a guard for as long as one takes to start.
func (s *storm) leisure() bool {
	rate := 0
	for _, c := range s.culprits {
		if c.let.IsZero() || !s.lives(c.Pod) {
			continue
		}
		if c.bomb {
			return false
		}
		rate += c.rate
	}
	return s.memory() > int64(100+25*rate)<<20 && len(s.Status().InFlight) == 0 && (rate == 0 || s.serves())
}

// known reports whether criguard knows all pods.
func (s *storm) known() bool {
	running := 0
	for _, p := range s.pods {
		if !p.removed && s.lives(p) {
			running++
		}
	}
	now := s.Status()
	return now.Runtime.ListedAt != nil && now.Pods >= running
}

// memory returns memory.available, in bytes.
func (s *storm) memory() int64 {
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		s.Fatalf("%v", err)
	}
	node, err := cgroup.OpenNode(layout, "")
	if err != nil {
		s.Fatalf("%v", err)
	}
	defer node.Close()
	info, err := node.MemInfo()
	if err != nil {
		s.Fatalf("%v", err)
	}
	m, err := node.Memory(info, 0)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return info.Total - m.WorkingSet()
}

// renewed waits for a new criguard process.
func (s *storm) renewed() {
	s.Until("another criguard", func() bool {
		status, err := s.guard.Status(s.context())
		return err == nil && strconv.Itoa(status.PID) != s.guardPID
	})
	s.guardPID = s.pid()
}

func (s *storm) reloadGood() {
	s.level = 90 + s.rand.IntN(30)
	s.Write(configFile, s.config(s.threshold()))
	s.Shell("criguard reload --now")
	s.Until("the new configuration", func() bool { return s.inForce(s.threshold()) })
}

func (s *storm) reloadBad() {
	s.Write(configFile, s.config("lots"))
	s.Shell("systemctl reload criguard")
	s.Until("the refusal", func() bool { return s.Status().ConfigNote != "" })
	if !s.inForce(s.threshold()) {
		s.Errorf("a bad configuration was taken")
	}
	s.Write(configFile, s.config(s.threshold()))
	s.Shell("criguard reload --now")
	s.Until("the good configuration", func() bool { return s.Status().ConfigNote == "" })
}

// fillDisk fills the disk except for a few MiB.
func (s *storm) fillDisk() {
	var fs syscall.Statfs_t
	if err := syscall.Statfs("/", &fs); err != nil {
		s.Fatalf("%v", err)
	}
	size := int64(fs.Bavail)*int64(fs.Bsize) - (4+s.rand.Int64N(36))<<20 //nolint:unconvert // 32 bits on arm
	s.Shell(fmt.Sprintf("fallocate -l %d /ballast", size))
	s.lasts("full disk", nil, func() { s.Shell("rm /ballast") })
}

// burst sends many requests of all kinds at once, next to idle connections.
func (s *storm) burst() {
	var wg sync.WaitGroup
	for range 20 {
		if idle, err := net.Dial("unix", rundir.Default.Socket()); err == nil {
			defer idle.Close()
		}
	}
	for i := range 30 {
		wg.Go(func() {
			switch i % 3 {
			case 0:
				_, _ = s.guard.Status(s.context())
			case 1:
				_, _ = s.guard.Rank(s.context(), policy.MemoryAvailable)
			default:
				_, _ = s.guard.History(s.context(), 20)
			}
		})
	}
	wg.Wait()
}

// freezeShim freezes a pod's shim for a while.
func (s *storm) freezeShim(p *Pod) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		text, _ := os.ReadFile(path)
		if !bytes.Contains(text, []byte("containerd-shim")) || !bytes.Contains(text, []byte("-id\x00"+p.SandboxID)) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		if err != nil || syscall.Kill(pid, syscall.SIGSTOP) != nil {
			continue
		}
		s.lasts(shimFrozen, p, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	}
}

// bystander returns an innocent pod.
func (s *storm) bystander() *Pod {
	var innocent []*Pod
	for _, p := range s.pods {
		if p.standing {
			innocent = append(innocent, p)
		}
	}
	innocent = append(innocent, s.visitors...)
	return innocent[s.rand.IntN(len(innocent))]
}

// roomForCulprit reports whether another culprit may be created.
func (s *storm) roomForCulprit() bool { return len(s.culprits) < 3 && s.calmEnough() }

// prime creates a culprit that waits for its trigger.
func (s *storm) prime(bomb bool) {
	c := &culprit{bomb: bomb, rate: 10 + s.rand.IntN(190), trigger: fmt.Sprintf("/run/trigger/go-%d", s.made)}
	args := []string{"hog", "-mib", "4096", "-rate", strconv.Itoa(c.rate)}
	if bomb {
		c.rate = 10 + s.rand.IntN(40)
		args = []string{"fork", "-count", "100000", "-rate", strconv.Itoa(c.rate)}
	}
	s.Shell("mkdir -p /run/trigger")
	if c.Pod = s.start("culprit", append(args, "-when", "/trigger/"+filepath.Base(c.trigger))...); c.Pod != nil {
		s.culprits = append(s.culprits, c)
	}
}

// start starts a pod. It may fail, because the runtime may be restarting.
func (s *storm) start(name string, args ...string) *Pod {
	s.made++
	p, err := s.launch(lab.PodSpec{Name: fmt.Sprintf("%s-%d", name, s.made), Containers: []lab.ContainerSpec{{
		Name: "main", Args: args, Mounts: []lab.Mount{{Host: "/run/trigger", Container: "/trigger"}},
	}}})
	if err != nil {
		s.note("not started: %v", err)
		return nil
	}
	s.pods = append(s.pods, p)
	return p
}

// waiting returns a culprit that has not been triggered yet, or nil.
func (s *storm) waiting() *culprit {
	return s.find(func(c *culprit) bool { return c.let.IsZero() })
}

// ended returns a culprit that was stopped and can be removed, or nil.
func (s *storm) ended() *culprit {
	return s.find(func(c *culprit) bool { return !c.let.IsZero() && !s.lives(c.Pod) && !s.has(shimFrozen, c.Pod) })
}

func (s *storm) find(want func(*culprit) bool) *culprit {
	i := slices.IndexFunc(s.culprits, want)
	if i < 0 {
		return nil
	}
	return s.culprits[i]
}

// bury removes a culprit.
func (s *storm) bury(c *culprit) {
	s.remove(c.Pod)
	if !c.let.IsZero() {
		s.convicts = append(s.convicts, c.Pod)
	}
	s.culprits = slices.DeleteFunc(s.culprits, func(other *culprit) bool { return other == c })
}
