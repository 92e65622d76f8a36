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
)

// Try is the effect of one hog on the node under one guard.
type Try struct {
	Relief      time.Duration // time from MemAvailable below 1/10 of MemTotal to above 1/3
	Gap         time.Duration // longest pause of the heartbeat, due every 100 ms, until the hog's pod is removed
	KernelKills int           // processes that the kernel killed
	Wrong       []string      // pods and daemons, other than the hog, that were killed
}

func (t Try) String() string {
	return fmt.Sprintf("relief %s, gap %s, %d killed by the kernel, %d wrong %v", t.Relief.Round(time.Millisecond), t.Gap.Round(time.Millisecond),
		t.KernelKills, len(t.Wrong), t.Wrong)
}

const (
	aftermath       = 2 * time.Second // from relief to the hog's removal: guard, kernel and runtime are still busy
	criguardVersion = "criguard version | head -1 | cut -d' ' -f2"
	prelude         = 2 * time.Second    // of heartbeat before the hog begins
	calmFor         = time.Second        // typical time from a hog's start to its end
	calm            = "no-hog"           // measures the heartbeat alone, next to a pod that comes and goes
	asInstalled     = "criguard-default" // the kubelet's threshold; "criguard" acts like earlyoom, at 10 % MemAvailable
	kubelet         = "kubelet"
	unbudgeted      = "[budget]\nhard = {burst = 50, every = \"1s\"}\nper_hour = 0\n"
)

// rivals are the compared guards, each with commands that enable it and print its version.
// systemd-oomd gets the settings that make it act soonest; with its defaults, it waits 30 seconds.
var rivals = []struct{ name, start, version string }{
	{"criguard", "true", criguardVersion},
	{asInstalled, "true", criguardVersion},
	{"earlyoom", "systemctl start earlyoom", "dpkg-query -W -f '${Version}' earlyoom"},
	{"systemd-oomd", "mkdir -p /etc/systemd/oomd.conf.d && printf '[OOM]\\nDefaultMemoryPressureDurationSec=1s\\n' >/etc/systemd/oomd.conf.d/fast.conf" +
		" && systemctl set-property --runtime kubepods.slice ManagedOOMMemoryPressure=kill ManagedOOMMemoryPressureLimit=10%" +
		" && systemctl start systemd-oomd", "dpkg-query -W -f '${Version}' systemd-oomd"},
	{kubelet, "true", payload + "/kubernetes/kubelet --version | cut -d' ' -f2"},
	{"nobody", "true", "uname -r"},
	{calm, "true", "uname -r"},
}

// eager makes the kubelet evict at the level of the other guards. By default, it rejects BestEffort pods for
// five minutes after an eviction.
var eager = map[string]any{"evictionHard": map[string]string{"memory.available": "10%"}, "evictionPressureTransitionPeriod": "1s"}

// Rivals returns a scenario for each guard, on the same node with the same hog. They are
// measurements, and fail only if they cannot measure.
func Rivals() []Scenario {
	var all []Scenario
	for _, r := range rivals {
		profile := V2New
		if r.name == kubelet {
			profile = V2Kube
		}
		all = append(all, Scenario{
			Name: r.name, What: "a hog under " + r.name, Profiles: []Profile{profile}, Limit: 20 * time.Minute,
			Detail: r.name == asInstalled || r.name == calm,
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
				if r.name == kubelet {
					n.configureKubelet(eager)
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

// try starts a hog and watches the node until it has recovered.
func (n *Node) try(i int, guard string) Try {
	kills, daemons, mib := kernelKills(), n.daemons(), "4096"
	if guard == calm {
		mib = "8"
	}
	name := fmt.Sprintf("hog-%d", i)
	n.disarm(name)
	hog := n.RunPod(primed(name, "hog", "-mib", mib))
	hog.stopped = true
	var (
		try  Try
		stop = make(chan struct{})
		beat sync.WaitGroup
	)
	beat.Go(func() { try.Gap = heartbeat(stop) })
	time.Sleep(prelude)
	n.arm(name)
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
	n.remove(hog) // with any guard, the pods' manager removes it sooner or later
	close(stop)
	beat.Wait()
	n.revive()
	return try
}

// relief waits until memory is short and then until it is not, and returns the time in between. It
// returns 0 if the hog ends before memory is short.
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

// revive replaces the standing pods that were killed.
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

// heartbeat starts a program every 100 ms and returns the longest time between two completed runs.
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

// daemons lists the processes of services and shims as "PID name".
func (n *Node) daemons() []string {
	procs, _ := os.ReadDir("/proc")
	var found []string
	for _, p := range procs {
		name, err := os.ReadFile("/proc/" + p.Name() + "/comm")
		if err != nil {
			continue
		}
		switch comm := strings.TrimSpace(string(name)); comm {
		case "containerd", "containerd-shim", "systemd-journal", "systemd-udevd", "systemd-logind", "dbus-daemon", "criguard", "earlyoom", "systemd-oomd",
			"etcd", "kube-apiserver", "kubelet":
			found = append(found, p.Name()+" "+comm)
		}
	}
	return found
}
