package scenario

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/criguard/criguard/cgroup"
)

// Try is the effect of one hog on the node under one guard.
type Try struct {
	Rate        int           // of the hog, MiB per second; 0 = no hog
	Reached     int           // the hog's actual rate until its end: the CPUs are emulated
	Relief      time.Duration // time from MemAvailable below 1/10 of MemTotal to above 1/3
	Overshoot   int64         // bytes: how far below 1/10 of MemTotal MemAvailable fell
	Gap         time.Duration // longest pause of the heartbeat, due every 100 ms, until the hog's pod is removed
	KernelKills int           // processes that the kernel killed
	Wrong       []string      // pods and daemons, other than the hog, that were killed
}

func (t Try) String() string {
	return fmt.Sprintf("%d MiB/s (reached %d), relief %s, overshoot %d MiB, gap %s, %d killed by the kernel, %d wrong %v", t.Rate, t.Reached,
		t.Relief.Round(time.Millisecond), t.Overshoot>>20, t.Gap.Round(time.Millisecond), t.KernelKills, len(t.Wrong), t.Wrong)
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
	{"none", "true", "uname -r"},
	{calm, "true", "uname -r"},
}

// hogRates are the rates of the hogs, in MiB per second.
var hogRates = []int{200, 800, 3000}

// evictsAt returns the configuration of a kubelet that evicts for memory at a level, and for nothing else; "0%" is
// never. By default, it rejects BestEffort pods for five minutes after an eviction.
func evictsAt(level string) map[string]any {
	return map[string]any{"evictionHard": map[string]string{
		"memory.available": level, "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%",
	}, "evictionPressureTransitionPeriod": "1s"}
}

// Rivals returns a scenario for each guard, on the same node, beside a kubelet, with the same hogs. They are
// measurements, and fail only if they cannot measure.
func Rivals() []Scenario {
	var all []Scenario
	for _, r := range rivals {
		all = append(all, Scenario{
			Name: r.name, What: "hogs under " + r.name, Profiles: []Profile{V2Kube}, Limit: time.Hour,
			Detail: r.name == asInstalled || r.name == calm,
			Run: func(n *Node) {
				n.unchecked = true
				level := "0%"
				switch r.name {
				case "criguard":
					n.Configure(unbudgeted + "[eviction.hard]\n\"meminfo.available\" = \"10%\"\n")
				case asInstalled:
					n.Configure(unbudgeted)
				case kubelet:
					level = "10%"
					fallthrough
				default:
					n.Shell("systemctl stop criguard")
				}
				n.configureKubelet(evictsAt(level))
				n.Shell(r.start)
				n.Sayf("%s", n.Shell(r.version))
				n.Sayf("untimed: %s", n.try("untimed", r.name, hogRates[0]))
				for _, rate := range ratesOf(r.name) {
					for i := range n.order.Tries {
						try := n.try(fmt.Sprintf("%d-%d", rate, i+1), r.name, rate)
						n.tell(Event{Kind: Said, Text: fmt.Sprintf("try %d: %s", i+1, try), Try: &try})
					}
				}
			},
		})
	}
	return all
}

// ratesOf returns the rates of the hogs under a guard.
func ratesOf(guard string) []int {
	if guard == calm {
		return []int{0}
	}
	return hogRates
}

// try starts a hog and watches the node until it has recovered.
func (n *Node) try(id, guard string, rate int) Try {
	kills, daemons, mib := n.machine.KernelKills(), n.daemons(), "4096"
	if guard == calm {
		mib = "8"
	}
	name := "hog-" + id
	n.disarm(name)
	hog := n.RunPod(primed(name, "hog", "-mib", mib, "-rate", fmt.Sprint(rate), "-progress", "/trigger/"+name+".progress"))
	hog.stopped = true
	var (
		try  = Try{Rate: rate}
		stop = make(chan struct{})
		beat sync.WaitGroup
	)
	beat.Go(func() { try.Gap = heartbeat(stop) })
	time.Sleep(prelude)
	n.arm(name)
	if guard == calm {
		time.Sleep(calmFor)
	} else {
		try.Relief, try.Overshoot = n.relief(hog)
	}
	try.Reached = n.reached(name)
	time.Sleep(aftermath)
	try.KernelKills = n.machine.KernelKills() - kills
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

// relief waits until memory is short and then until it is not. It returns the time in between, and how far memory fell. It
// returns 0 if the hog ends before memory is short.
func (n *Node) relief(hog *Pod) (took time.Duration, overshoot int64) {
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		n.Fatalf("%v", err)
	}
	const every = 5 * time.Millisecond
	var d dip
	var looked time.Time
	for begin := time.Now(); time.Since(begin) < 3*time.Minute; time.Sleep(every) {
		m, err := cgroup.ReadMemInfo(layout)
		if err != nil {
			n.Fatalf("%v", err)
		}
		if d.see(time.Now(), m.Available, m.Total) {
			return d.took, d.overshoot
		}
		if d.short.IsZero() && time.Since(looked) > 20*every {
			if looked = time.Now(); len(n.machine.Processes(hog.Containers[0].Cgroup)) == 0 {
				return 0, 0
			}
		}
	}
	n.Fatalf("the hog was not ended within 3 minutes")
	return 0, 0
}

// dip is how memory falls below a tenth and comes back.
type dip struct {
	short     time.Time // when it fell below a tenth; zero = not yet
	took      time.Duration
	overshoot int64
}

// see notes a reading, and reports whether memory is back.
func (d *dip) see(now time.Time, available, total int64) (back bool) {
	if d.short.IsZero() {
		if available >= total/10 {
			return false
		}
		d.short = now
	}
	d.overshoot = max(d.overshoot, total/10-available)
	d.took = now.Sub(d.short)
	return available > total/3
}

// reached returns a hog's actual rate in MiB per second, 0 if it has not begun.
func (n *Node) reached(name string) int {
	text, err := os.ReadFile(filepath.Join(triggers, name+".progress"))
	if err != nil {
		n.Fatalf("%v", err)
	}
	n.Shell("rm " + filepath.Join(triggers, name+".progress"))
	return rateOf(text)
}

// rateOf returns the rate in a hog's progress: the bytes, when it took the last of them, and when it began.
func rateOf(progress []byte) int {
	if len(progress) < 24 {
		return 0
	}
	word := func(i int) int64 { return int64(binary.NativeEndian.Uint64(progress[8*i:])) }
	took := time.Duration(word(1) - word(2))
	if took <= 0 {
		return 0
	}
	return int(float64(word(0)>>20) / took.Seconds())
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
