package scenario

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

const (
	// roomy is a threshold at which the kernel does not reclaim yet, so that nothing but a hog moves the signal.
	roomy = 300 << 20
	// hangs is when a hog counts as not stopped at all. Emulation allows no closer bound.
	hangs = time.Minute
)

// rates measures from the outside how long hogs survive the crossing of a threshold. On cgroup v2, the kernel has no event
// for it.
func rates(n *Node) {
	n.Configure(plenty + fmt.Sprintf("[eviction.hard]\n\"memory.available\" = \"%d\"\n", roomy))
	for _, rate := range hogRates {
		var took []time.Duration
		reached := 0
		for i := range max(n.order.Tries/2, 1) {
			name := fmt.Sprintf("leaky-%d-%d", rate, i)
			n.disarm(name)
			p := n.RunPod(primed(name, "hog", "-mib", "4096", "-rate", fmt.Sprint(rate), "-progress", "/trigger/"+name+".progress"))
			n.settled()
			took = append(took, n.survival(p, roomy))
			n.stopped(p, "hard", policy.MemoryAvailable)
			reached = max(reached, n.reached(name))
			n.remove(p)
		}
		slices.Sort(took)
		n.Sayf("at %d MiB/s (reached %d), %d hogs were dead %s after the crossing (median), %s (worst)", rate, reached, len(took),
			took[len(took)/2].Round(100*time.Microsecond), took[len(took)-1].Round(100*time.Microsecond))
	}
}

// survival lets a primed pod leak and returns how long it survives the crossing of a level of memory.available. It samples
// the kernel every millisecond, without asking criguard.
func (n *Node) survival(p *Pod, level int64) time.Duration {
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		n.Fatalf("%v", err)
	}
	node, err := cgroup.OpenNode(layout, "")
	if err != nil {
		n.Fatalf("%v", err)
	}
	defer node.Close()
	fd, err := unix.PidfdOpen(p.pids[0], 0)
	if err != nil {
		n.Fatalf("open process of %s: %v", p.ID(), err)
	}
	defer unix.Close(fd)
	var c crossing
	n.arm(p.Name)
	for begin := time.Now(); time.Since(begin) < hangs; {
		polled, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			n.Fatalf("wait for the end of %s: %v", p.ID(), err)
		}
		now := time.Now()
		if polled > 0 {
			c.see(now, -1) // unless a reading showed the crossing, it came after the last one
			return now.Sub(c.at)
		}
		info, err := node.MemInfo()
		if err != nil {
			n.Fatalf("%v", err)
		}
		m, err := node.Memory(info, 0)
		if err != nil {
			n.Fatalf("%v", err)
		}
		c.see(now, info.Total-m.WorkingSet()-level)
	}
	n.Fatalf("%s was not ended within %s; memory crossed the threshold: %v", p.ID(), hangs, !c.at.IsZero())
	return 0
}

// crossing finds when a signal crosses a level, between two readings.
type crossing struct {
	at     time.Time // zero = not yet
	before time.Time
	above  int64
}

// see notes how far above its level a signal is.
func (c *crossing) see(now time.Time, above int64) {
	if !c.at.IsZero() {
		return
	}
	if above < 0 {
		if c.at = now; !c.before.IsZero() {
			share := float64(c.above) / float64(c.above-above)
			c.at = c.before.Add(time.Duration(share * float64(now.Sub(c.before))))
		}
	}
	c.before, c.above = now, above
}
