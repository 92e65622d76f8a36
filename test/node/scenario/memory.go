package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// memory returns the scenarios about memory shortage.
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
			Name: "leak-twenty", What: "one pod after the other takes memory as fast as it can: each is stopped before the kernel's killer",
			Profiles: []Profile{V2}, Limit: 8 * time.Minute,
			Run: twenty,
		},
		{
			Name: "leak-priority", What: "the pod that leaks has the highest priority, at each of three rates: it is stopped every time, no other",
			Profiles: []Profile{V2}, Limit: 12 * time.Minute,
			Run: priority,
		},
		{
			Name: "leak-rates", What: "pods leak at each of three rates where the kernel has no event: seen from the outside, each is dead in time",
			Profiles: []Profile{V2}, Limit: 12 * time.Minute,
			Run: rates,
		},
		{
			Name: "leak-again", What: "a pod leaks each time that it comes back: it is stopped every time and costs one stop of the budget",
			Profiles: []Profile{V2}, Limit: 8 * time.Minute,
			Run: again,
		},
		{
			Name: "leak-outside", What: "again and again, memory goes to no pod: no pod is stopped, and criguard says why",
			Profiles: []Profile{V2, V1}, Limit: 8 * time.Minute,
			Run: outside,
		},
		{
			Name: "leak-outside-slow", What: "memory slowly goes to no pod: the breaker opens after three stops",
			Profiles: []Profile{V2},
			Run:      outsideSlow,
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
		{
			Name: "zram-idle", What: "a leak pushes idle pods into compressed swap: it is stopped, and none of them",
			Profiles: []Profile{V2},
			Run:      zramIdle,
		},
	}
}

// leak starts a pod that takes more memory than the node has, at the given rate in MiB per second.
func leak(n *Node, spec lab.PodSpec, rate string) {
	leaky := n.Run(spec, "hog", "-mib", "4096", "-rate", rate)
	n.relieved(leaky)
}

// relieved waits for a hard stop for memory, and until memory is available again.
func (n *Node) relieved(leaky *Pod) {
	n.Stopped(leaky, "hard", policy.MemoryAvailable)
	if !n.Condition("MemoryPressure") {
		n.Errorf("no MemoryPressure after a stop for memory")
	}
	n.Until("memory to be back", func() bool { return n.Available(policy.MemoryAvailable) > 160<<20 })
}

func twenty(n *Node) {
	n.Configure(plenty)
	n.leaks("leaky", "0")
}

// plenty is a budget that never holds a stop back.
const plenty = "[budget]\nhard = {burst = 100, every = \"1s\"}\nper_hour = 0\n"

// leaks runs one pod after the other that takes memory at a rate in MiB per second.
func (n *Node) leaks(name, rate string) {
	var slowest time.Duration
	for i := range n.order.Tries {
		p := n.Run(lab.PodSpec{Name: fmt.Sprintf("%s-%d", name, i)}, "hog", "-mib", "4096", "-rate", rate)
		stop := n.stopped(p, "hard", policy.MemoryAvailable)
		if stop.Result != nil {
			slowest = max(slowest, time.Duration(stop.Result.EmptiedIn))
		}
		n.remove(p)
	}
	n.Sayf("at %s MiB/s stopped %d of %d, the slowest empty after %s, %d killed by the kernel", rate, n.order.Tries, n.order.Tries,
		slowest.Round(time.Millisecond), n.machine.KernelKills()-n.before.kernelKills)
}

func priority(n *Node) {
	n.Configure(plenty + "[[priority]]\nname = \"leaky-*\"\nvalue = 1000000\n")
	for _, rate := range []string{"200", "800", "3000"} {
		n.leaks("leaky-"+rate, rate)
	}
}

// again leaves out the rule for culprits, which take no budget either.
func again(n *Node) {
	n.Configure("[budget]\nhard = {burst = 1, every = \"1h\"}\n[rank]\nmemory = [\"over_request\", \"priority\", \"usage\"]\n")
	for range n.order.Tries {
		p := n.Run(lab.PodSpec{Name: "leaky"}, "hog", "-mib", "4096", "-rate", "400")
		n.stopped(p, "hard", policy.MemoryAvailable)
		n.remove(p)
	}
	if b := n.Status().Budget.Hard; b.LastHour != 1 {
		n.Errorf("%d stops took budget, want 1", b.LastHour)
	}
	n.Sayf("stopped %d of %d, for one stop of the budget", n.order.Tries, n.order.Tries)
}

func outside(n *Node) {
	for i := range 2 { // together too small to bring relief, but not while the last of a hog's memory comes back
		n.Run(lab.PodSpec{Name: fmt.Sprintf("innocent-%d", i)}, "hog", "-mib", "8")
	}
	n.Configure("[eviction.hard]\n\"memory.available\" = \"300Mi\"\n")
	before := n.Available(policy.MemoryAvailable)
	for range n.order.Tries {
		n.hogOutside(n.Available(policy.MemoryAvailable)-180<<20, 400)
		n.Until("a stop to be held back", func() bool { s := n.Status(); return s.Held == api.HeldOutside })
		n.Shell("systemctl stop hog")
		n.Until("memory to be back", func() bool {
			return n.Available(policy.MemoryAvailable) > before-32<<20 && n.Status().Held == ""
		})
	}
	n.Until("the journal to say why", func() bool {
		_, err := n.machine.Shell("journalctl -u criguard | grep 'stop held back' | grep -q 'outside pods'")
		return err == nil
	})
	n.Sayf("%d of %d hogs cost no pod, %d pods were stopped", n.order.Tries, n.order.Tries, n.allow(0))
}

func outsideSlow(n *Node) {
	for i := range 6 { // more than three, so that the others could bring relief when the breaker opens
		n.holds(n.Run(lab.PodSpec{Name: fmt.Sprintf("innocent-%d", i)}, "hog", "-mib", "60"), 60<<20)
	}
	threshold := n.Available(policy.MemoryAvailable) - 50<<20
	n.Configure(plenty + fmt.Sprintf("[eviction.hard]\n\"memory.available\" = \"%d\"\n", threshold))
	n.hogOutside(n.Available(policy.MemoryAvailable)+100<<20, 10) // it uses up what three stops give back
	n.Until("the breaker to open", func() bool { return len(n.Status().Budget.Breakers) > 0 })
	n.Sayf("%d pods stopped, then no more", n.allow(3))
	n.Shell("systemctl stop hog")
	n.Until("memory to be back", func() bool { return n.Available(policy.MemoryAvailable) > threshold })
}

// holds waits until a pod uses so much memory, in bytes.
func (n *Node) holds(p *Pod, size int64) {
	n.Until("pod "+p.Name+" to use its memory", func() bool {
		r, err := n.guard.Rank(n.context(), policy.MemoryAvailable)
		return err == nil && slices.ContainsFunc(r.Pods, func(v api.RankedView) bool { return v.UID == p.UID && v.Usage >= size })
	})
}

// hogOutside starts a process outside every pod that takes so much memory, in bytes, at a rate in MiB per second.
func (n *Node) hogOutside(size int64, rate int) {
	n.Shell(fmt.Sprintf("systemd-run -q -u hog -p OOMScoreAdjust=-500 %s/workload hog -mib %d -rate %d", payload, size>>20, rate))
}

const zramOn = "modprobe zram && echo 512M >/sys/block/zram0/disksize && mkswap -q /dev/zram0 && swapon /dev/zram0"

func zram(n *Node) {
	n.Shell(zramOn)
	n.Configure("[eviction.hard]\n\"memory.available\" = \"0%\"\n\"swap.available\" = \"40%\"\n")
	p := n.Run(lab.PodSpec{Name: "leaky"}, "hog", "-mib", "4096", "-rate", "200")
	n.Stopped(p, "hard", policy.SwapAvailable)
	n.Until("swap to be back", func() bool { return n.Available(policy.SwapAvailable) > 300<<20 })
}

func zramIdle(n *Node) {
	n.Shell(zramOn)
	for i := range 3 {
		n.holds(n.Run(lab.PodSpec{Name: fmt.Sprintf("idle-%d", i)}, "hog", "-mib", "100"), 100<<20)
	}
	n.Configure("[eviction.hard]\n\"memory.available\" = \"0%\"\n\"swap.available\" = \"70%\"\n[[priority]]\nname = \"leaky\"\nvalue = 1000\n")
	p := n.Run(lab.PodSpec{Name: "leaky"}, "hog", "-mib", "4096", "-rate", "200")
	n.Stopped(p, "hard", policy.SwapAvailable)
}
