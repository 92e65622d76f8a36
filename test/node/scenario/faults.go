package scenario

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
)

// faults returns the scenario with all faults at once.
func faults() []Scenario {
	return []Scenario{
		{
			Name: "faults", What: "random faults, several at a time: each pod that misbehaves is stopped in time, nobody else, and criguard grows not",
			Profiles: []Profile{V2}, Limit: 8 * time.Minute,
			Run: rage,
		},
	}
}

// storm is a node under random faults.
type storm struct {
	*Node
	rand     *rand.Rand
	level    int // the current memory threshold, in MiB
	lasting  []lasting
	culprits []*culprit
	visitors []*Pod // innocent pods that come and go
	guardPID string
	done     map[string]int // number of faults, by name
	made     int            // number of pods started so far, for their names
	convicts []*Pod         // removed pods that had misbehaved
	short    time.Time      // time since which memory is below its threshold
	longest  time.Duration
}

// lasting is a fault in progress that ends by itself.
type lasting struct {
	name string
	of   *Pod // the pod whose shim it concerns; nil: the node
	ends time.Time
	end  func()
}

// culprit is a pod that misbehaves once it is triggered.
type culprit struct {
	*Pod
	trigger string
	bomb    bool
	rate    int // MiB or processes per second
	let     time.Time
}

func rage(n *Node) {
	s := &storm{Node: n, rand: rand.New(rand.NewPCG(n.order.Seed, 0)), level: 100, done: map[string]int{}}
	n.Sayf("seed %d", n.order.Seed)
	n.ended = true
	n.Shell("sysctl -q -w kernel.pid_max=4096")
	n.Configure(s.config(s.threshold()))
	s.guardPID = n.pid()

	s.blow(n.order.Length/2, true)
	s.calm()
	// Allocate once what many simultaneous clients need. After that, criguard keeps running, so
	// that leaks add up.
	s.burst()
	before := s.cost()
	s.blow(n.order.Length/2, false)
	s.calm()
	var after cost
	_ = poll("", 30*time.Second, func() bool { after = s.cost(); return !after.above(before) })
	if after.above(before) {
		n.Errorf("criguard has grown from %s to %s", before, after)
	}
	s.verified()
	if n.Shell("journalctl -b -u criguard | grep -c -e 'panic:' -e 'fatal error:' -e 'Watchdog timeout' || true") != "0" {
		n.Errorf("criguard ended in a panic")
	}
	n.Sayf("%s", s.summary())
	n.Sayf("%d pods stopped; memory below its threshold for %s at most; criguard went from %s to %s", len(s.convicts),
		s.longest.Round(10*time.Millisecond), before, after)
}

// blow injects one fault after another. It stops at the first failure, because results after that
// prove nothing.
func (s *storm) blow(length time.Duration, guardToo bool) {
	for end := time.Now().Add(length); time.Now().Before(end) && len(s.failures) == 0; {
		var can []fault
		for _, f := range faultTable() {
			if (guardToo || !f.guard) && f.may(s) {
				can = append(can, slices.Repeat([]fault{f}, f.weight)...)
			}
		}
		f := can[s.rand.IntN(len(can))]
		s.note("%s", f.name)
		s.done[f.name]++
		f.do(s)
		s.watch(s.between(500*time.Millisecond, 3*time.Second))
	}
}

// calm ends all faults in progress, waits until all culprits are stopped, and removes all pods
// except the standing ones.
func (s *storm) calm() {
	for _, l := range s.lasting {
		l.end()
	}
	s.lasting = nil
	s.note("calm")
	for begin := time.Now(); len(s.failures) == 0 && slices.ContainsFunc(s.culprits, func(c *culprit) bool { return !c.let.IsZero() && s.lives(c.Pod) }); {
		if time.Since(begin) > patience {
			s.Fatalf("pods that misbehave were not stopped within %s", patience)
		}
		s.watch(time.Second)
	}
	if len(s.failures) > 0 {
		s.Fatalf("%s", s.summary())
	}
	s.Until("the runtime to serve", s.serves)
	for _, c := range slices.Clone(s.culprits) {
		s.bury(c)
	}
	for _, p := range s.visitors {
		s.remove(p)
	}
	s.visitors = nil
	s.settled()
	s.Until("end of all stops", func() bool { return len(s.Status().InFlight) == 0 })
}

// verified checks that each triggered culprit was stopped, and that each stop's effect was
// verified.
func (s *storm) verified() {
	proven := map[string]bool{}
	for _, stop := range s.settledStops() {
		proven[stop.UID] = proven[stop.UID] || stop.Result != nil && stop.Result.Emptied
	}
	for _, stop := range s.stops() {
		if !proven[stop.UID] {
			s.Errorf("the stop of %s was not verified", stop.Pod)
		}
	}
	for _, p := range s.convicts {
		if !proven[p.UID] {
			s.Errorf("%s ended, and the history knows of no stop", p.ID())
		}
	}
}

func (s *storm) summary() string {
	var parts []string
	total := 0
	for _, name := range slices.Sorted(maps.Keys(s.done)) {
		parts = append(parts, fmt.Sprintf("%d %s", s.done[name], name))
		total += s.done[name]
	}
	return fmt.Sprintf("%d faults in %s: %s", total, s.order.Length, strings.Join(parts, ", "))
}

// threshold returns level in the configuration's form.
func (s *storm) threshold() string { return fmt.Sprintf("%dMi", s.level) }

// config turns the disk thresholds off: no pod fills the disks here, and this scenario does not
// test disk evictions.
func (s *storm) config(memory string) string {
	return unbudgeted + "[history]\ndir = \"/var/lib/criguard\"\n[eviction.hard]\n\"nodefs.available\" = \"0%\"\n" +
		"\"imagefs.available\" = \"0%\"\n\"pid.available\" = \"80%\"\n\"memory.available\" = \"" + memory + "\"\n"
}

// note writes to the node's journal, whose end is shown when a scenario fails.
func (s *storm) note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "faults: "+format+"\n", args...)
}

func (s *storm) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rand.Int64N(int64(most-least)))
}
