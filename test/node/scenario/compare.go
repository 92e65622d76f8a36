package scenario

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/test/lab"
)

// Try is what one hog did to the node under one guard.
type Try struct {
	Relief      time.Duration // from MemAvailable below a tenth to above a third of MemTotal
	Gap         time.Duration // longest time between two runs of a program, one of which is due every 100 ms, until the hog's pod is removed
	KernelKills int           // processes that the kernel killed
	Wrong       []string      // pods and daemons, other than the hog, that did not live
}

func (t Try) String() string {
	return fmt.Sprintf("relief %s, gap %s, %d killed by the kernel, %d wrong %v", t.Relief.Round(time.Millisecond), t.Gap.Round(time.Millisecond),
		t.KernelKills, len(t.Wrong), t.Wrong)
}

const (
	aftermath       = 2 * time.Second // from the relief to the removal of the hog's pod: as long as guard, kernel and runtime are busy with what was ended
	criguardVersion = "criguard version | head -1 | cut -d' ' -f2"
	calmFor         = 3 * time.Second    // from a hog's start to its end, about
	calm            = "no-hog"           // what the heartbeat is by itself, beside a pod that comes and goes
	asInstalled     = "criguard-default" // acts at the kubelet's line; the other where earlyoom does: at a tenth of MemAvailable
	unbudgeted      = "[budget]\nhard = {burst = 50, every = \"1s\"}\nper_hour = 0\n"
)

// rivals are what is compared, each with what makes it guard and what tells its version. systemd-oomd is set to what makes it act
// soonest; its defaults wait for 30 seconds.
var rivals = []struct{ name, start, version string }{
	{"criguard", "true", criguardVersion},
	{asInstalled, "true", criguardVersion},
	{"earlyoom", "systemctl start earlyoom", "dpkg-query -W -f '${Version}' earlyoom"},
	{"systemd-oomd", "mkdir -p /etc/systemd/oomd.conf.d && printf '[OOM]\\nDefaultMemoryPressureDurationSec=1s\\n' >/etc/systemd/oomd.conf.d/fast.conf" +
		" && systemctl set-property --runtime kubepods.slice ManagedOOMMemoryPressure=kill ManagedOOMMemoryPressureLimit=10%" +
		" && systemctl start systemd-oomd", "dpkg-query -W -f '${Version}' systemd-oomd"},
	{"nobody", "true", "uname -r"},
	{calm, "true", "uname -r"},
}

// Rivals is a scenario for each guard on the same node with the same hog. They measure, and fail only if they cannot.
func Rivals() []Scenario {
	var all []Scenario
	for _, r := range rivals {
		all = append(all, Scenario{
			Name: r.name, What: "a hog under " + r.name, Profiles: []Profile{V2New}, Limit: 20 * time.Minute,
			Run: func(n *Node) {
				n.unchecked = true
				switch r.name {
				case "criguard":
					n.Configure(unbudgeted + "[eviction.hard]\n\"meminfo.available\" = \"10%\"\n")
				case asInstalled:
					n.Configure(unbudgeted)
				default:
					n.Shell("systemctl stop criguard")
				}
				n.Shell(r.start)
				n.Sayf("%s", n.Shell(r.version))
				n.Sayf("untimed: %s", n.try(0, r.name))
				for i := range n.order.Tries {
					try := n.try(i+1, r.name)
					n.tell(Event{Kind: Said, Text: fmt.Sprintf("try %d: %s", i+1, try), Try: &try})
				}
			},
		})
	}
	return all
}

// try lets a hog loose and watches the node until it is well again.
func (n *Node) try(i int, guard string) Try {
	kills, daemons, mib := kernelKills(), n.daemons(), "4096"
	if guard == calm {
		mib = "8"
	}
	hog := n.Run(lab.PodSpec{Name: fmt.Sprintf("hog-%d", i)}, "hog", "-mib", mib, "-after", "2s")
	hog.stopped = true
	var (
		try  Try
		stop = make(chan struct{})
		beat sync.WaitGroup
	)
	beat.Go(func() { try.Gap = heartbeat(stop) })
	if guard == calm {
		time.Sleep(calmFor)
	} else {
		try.Relief = n.relief(hog)
	}
	time.Sleep(aftermath)
	try.KernelKills = kernelKills() - kills
	now := n.daemons()
	for _, d := range daemons {
		if !slices.Contains(now, d) {
			try.Wrong = append(try.Wrong, d)
		}
	}
	for _, p := range n.pods {
		if p.standing && !n.lives(p) {
			try.Wrong = append(try.Wrong, p.ID())
		}
	}
	n.remove(hog) // whoever manages the pods does so sooner or later, with whichever guard
	close(stop)
	beat.Wait()
	n.revive()
	return try
}

// relief waits until memory is short, and then until it is not, and returns the time between. A hog that ends before is no trouble.
func (n *Node) relief(hog *Pod) time.Duration {
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		n.Fatalf("%v", err)
	}
	const every = 5 * time.Millisecond
	var short, looked time.Time
	for begin := time.Now(); time.Since(begin) < 3*time.Minute; time.Sleep(every) {
		m, err := cgroup.ReadMemInfo(layout)
		switch {
		case err != nil:
			n.Fatalf("%v", err)
		case short.IsZero() && m.Available < m.Total/10:
			short = time.Now()
		case !short.IsZero() && m.Available > m.Total/3:
			return time.Since(short)
		case short.IsZero() && time.Since(looked) > 20*every:
			if looked = time.Now(); len(n.processes(hog.Containers[0].Cgroup)) == 0 {
				return 0
			}
		}
	}
	n.Fatalf("the hog was not ended within 3 minutes")
	return 0
}

// revive replaces the standing pods that did not live.
func (n *Node) revive() {
	for _, p := range slices.Clone(n.pods) {
		if p.removed || !p.standing || n.lives(p) {
			continue
		}
		n.remove(p)
		n.RunPod(p.PodSpec).standing = true
		n.pods = slices.DeleteFunc(n.pods, func(q *Pod) bool { return q == p })
	}
}

// heartbeat starts a program every 100 ms and returns the longest time between two that were done.
func heartbeat(stop <-chan struct{}) time.Duration {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	last, longest := time.Now(), time.Duration(0)
	for {
		select {
		case <-stop:
			return max(longest, time.Since(last))
		case <-ticker.C:
		}
		if exec.Command("/bin/true").Run() == nil {
			now := time.Now()
			last, longest = now, max(longest, now.Sub(last))
		}
	}
}

// daemons are the processes of services and shims, as "PID name".
func (n *Node) daemons() []string {
	procs, _ := os.ReadDir("/proc")
	var found []string
	for _, p := range procs {
		name, err := os.ReadFile("/proc/" + p.Name() + "/comm")
		if err != nil {
			continue
		}
		switch comm := strings.TrimSpace(string(name)); comm {
		case "containerd", "containerd-shim", "systemd-journal", "systemd-udevd", "systemd-logind", "dbus-daemon", "criguard", "earlyoom", "systemd-oomd":
			found = append(found, p.Name()+" "+comm)
		}
	}
	return found
}
