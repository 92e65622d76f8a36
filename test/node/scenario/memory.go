package scenario

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// memory is about memory that runs out.
func memory() []Scenario {
	return []Scenario{
		{
			Name: "leak-fast", What: "a BestEffort pod takes memory as fast as it can: it is stopped, nobody else",
			Profiles: []Profile{V2, V1, V2Small, V1Small, V2New, V1New},
			Run:      func(n *Node) { leak(n, lab.PodSpec{Name: "leaky"}, "0") },
		},
		{
			Name: "leak-slow", What: "a BestEffort pod leaks 50 MiB a second: it is stopped, nobody else",
			Profiles: []Profile{V2, V1, V2Small, V1Small},
			Run:      func(n *Node) { leak(n, lab.PodSpec{Name: "leaky"}, "50") },
		},
		{
			Name: "leak-burstable", What: "a Burstable pod leaks beside a Guaranteed one: it goes first, though BestEffort ones are there",
			Profiles: []Profile{V2, V1},
			Run:      func(n *Node) { leak(n, lab.PodSpec{Name: "leaky", MemoryRequest: 64 << 20}, "200") },
		},
		{
			Name: "leak-twenty", What: "twenty pods, one after the other, take memory as fast as they can: twenty stops before the kernel's killer",
			Profiles: []Profile{V2}, Limit: 8 * time.Minute,
			Run: twenty,
		},
		{
			Name: "leak-outside", What: "memory goes to no pod: no more are stopped than the breaker allows, and it is said",
			Profiles: []Profile{V2, V1},
			Run:      outside,
		},
		{
			Name: "leak-beside-kernel", What: "the kernel holds memory that is in no cgroup: a leak is stopped before its killer nonetheless",
			Profiles: []Profile{V1, V2},
			Run: func(n *Node) {
				n.Shell("modprobe zram && echo 256M >/sys/block/zram0/disksize && dd if=/dev/urandom of=/dev/zram0 bs=1M count=200 oflag=direct status=none")
				leak(n, lab.PodSpec{Name: "leaky"}, "200")
			},
		},
		{
			Name: "zram", What: "a pod fills compressed swap: it is stopped for swap.available",
			Profiles: []Profile{V2},
			Run:      zram,
		},
	}
}

// leak lets one pod take more than there is, at so many MiB a second.
func leak(n *Node, spec lab.PodSpec, rate string) {
	leaky := n.Run(spec, "hog", "-mib", "4096", "-rate", rate)
	n.relieved(leaky)
}

// relieved waits for a hard stop for memory, and for memory to be back.
func (n *Node) relieved(leaky *Pod) {
	n.Stopped(leaky, "hard", policy.MemoryAvailable)
	if !n.Condition("MemoryPressure") {
		n.Errorf("no MemoryPressure after a stop for memory")
	}
	n.Until("memory to be back", func() bool { return n.Available(policy.MemoryAvailable) > 160<<20 })
}

func twenty(n *Node) {
	n.Configure("[budget]\nhard = {burst = 50, every = \"1s\"}\nper_hour = 0\n")
	const tries = 20
	var slowest time.Duration
	for i := range tries {
		p := n.Run(lab.PodSpec{Name: fmt.Sprintf("leaky-%d", i)}, "hog", "-mib", "4096")
		stop := n.stopped(p, "hard", policy.MemoryAvailable)
		if stop.Result != nil {
			slowest = max(slowest, stop.Result.EmptiedIn)
		}
		n.remove(p)
	}
	n.Sayf("stopped %d of %d, the slowest empty after %s, %d killed by the kernel", tries, tries, slowest.Round(time.Millisecond),
		kernelKills()-n.before.kernelKills)
}

func outside(n *Node) {
	for i := range 2 {
		n.Run(lab.PodSpec{Name: fmt.Sprintf("innocent-%d", i)}, "hog", "-mib", "8") // five in all: three stops are not everybody
	}
	n.Configure("[eviction.hard]\n\"memory.available\" = \"300Mi\"\n")
	room := n.Available(policy.MemoryAvailable) - 180<<20
	n.Shell(fmt.Sprintf("systemd-run -q -u hog -p OOMScoreAdjust=-500 %s/workload hog -mib %d -rate 100", payload, room>>20))
	n.Until("pressure", func() bool { return n.Condition("MemoryPressure") })
	n.Until("the hog to be done", func() bool { _, err := shell("journalctl -u hog | grep -q 'hog: done'"); return err == nil })
	n.Until("a stop to be held back", func() bool {
		_, err := shell("journalctl -u criguard | grep 'stop held back' | grep -q -e budget -e breaker -e 'no candidate'")
		return err == nil
	})
	n.Sayf("%d pods stopped, then no more", n.allow(3))
	n.Shell("systemctl stop hog")
	n.Until("memory to be back", func() bool { return n.Available(policy.MemoryAvailable) > 320<<20 })
}

func zram(n *Node) {
	n.Shell("modprobe zram && echo 512M >/sys/block/zram0/disksize && mkswap -q /dev/zram0 && swapon /dev/zram0")
	n.Configure("[eviction.hard]\n\"memory.available\" = \"0%\"\n\"swap.available\" = \"40%\"\n")
	p := n.Run(lab.PodSpec{Name: "leaky"}, "hog", "-mib", "4096", "-rate", "200")
	n.Stopped(p, "hard", policy.SwapAvailable)
	n.Until("swap to be back", func() bool { return n.Available(policy.SwapAvailable) > 300<<20 })
}
