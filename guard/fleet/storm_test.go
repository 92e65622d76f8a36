package fleet

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Times of the protocol with the store that a storm needs.
const (
	renewWant = 3 * time.Minute  // a node that wants a stop renews its key
	wantLasts = 10 * time.Minute // the key of a node that does not renew it expires
)

const (
	stormNodes = 10_000
	minute     = time.Minute
	hour       = time.Hour
)

// storm is pressure on many nodes at once.
type storm struct {
	name   string
	zone   func(i int) string
	begins func(i int, rnd *rand.Rand) time.Duration // when a node wants its first soft stop; negative: never
	shared int                                       // number of workloads in the fleet; 0: each node has its own
	relief time.Duration                             // after a stop, a node wants none for this long
	cut    func(i int, at time.Duration) bool        // the node does not reach the store; nil: never
	grows  int                                       // percent of the wishes whose usage grows on towards the hard threshold
	lasts  time.Duration
	most   float64 // highest peak, in percent of the nodes per minute
}

// stormy is a node in a storm.
type stormy struct {
	*Waiter
	id       int
	zone     string
	workload string
	at       time.Duration // of its next event
	wants    bool
	again    time.Duration // it wants its next soft stop then
	known    bool          // the store has its key
	renewed  time.Duration // when the key was put or renewed
	local    tokens        // its budget without a fleet
	growth   *rand.Rand    // of its usage, wish by wish, the same with and without a fleet
	hard     time.Duration // its usage reaches the hard threshold then
}

// From the soft threshold, growing usage reaches the hard one after a random time between these: the signal moves by a
// hundredth of the distance every 6 to 72 s.
const (
	fastest = 10 * time.Minute
	slowly  = 2 * time.Hour
)

// begin begins a wish for a soft stop.
func (n *stormy) begin(grows int, now time.Duration) {
	n.wants, n.hard = true, now+fastest+random(n.growth, slowly-fastest)
	if n.growth.IntN(100) >= grows {
		n.hard = math.MaxInt64
	}
}

// agenda is the nodes in the order of their next events.
type agenda []*stormy

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(a[i].at, a[j].at), a[i].id-a[j].id) < 0
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(any)     {}
func (a *agenda) Pop() any     { return nil }

// world is a fleet in virtual time, with a store that answers at once.
type world struct {
	*storm
	rates     Rates
	rnd       *rand.Rand
	view      View
	slots     map[string]time.Duration // when the slot of a zone is free
	workloads map[string]time.Duration // when the slot of a workload is free
	stops     map[Verdict][]time.Duration
	hard      int // soft stops that became hard ones
}

// play runs a storm, and returns the times of the soft stops by their source, and the number of nodes that reached the hard
// threshold while they waited for one.
func (s *storm) play(fleet bool) (stops map[Verdict][]time.Duration, hard int) {
	w := &world{
		storm: s, rates: DefaultRates(), rnd: rand.New(rand.NewPCG(1, 2)), view: View{Zones: map[string]Zone{}},
		slots: map[string]time.Duration{}, workloads: map[string]time.Duration{}, stops: map[Verdict][]time.Duration{},
	}
	var all agenda
	for i := range stormNodes {
		n := &stormy{Waiter: NewWaiter(w.rates.Patience, soft, w.rnd), id: i, zone: s.zone(i), workload: fmt.Sprint(i), local: tokens{limit: soft, first: -soft.Every}, growth: rand.New(rand.NewPCG(uint64(i), 3))}
		if s.shared > 0 {
			n.workload = fmt.Sprint(w.rnd.IntN(s.shared))
		}
		z := w.view.Zones[n.zone]
		z.Members++
		w.view.Zones[n.zone] = z
		if at := s.begins(i, w.rnd); at >= 0 {
			n.at = start + at
			all = append(all, n)
		}
	}
	for heap.Init(&all); len(all) > 0 && all[0].at < start+s.lasts; heap.Fix(&all, 0) {
		if n := all[0]; fleet {
			w.step(n)
		} else {
			w.alone(n)
		}
	}
	return w.stops, w.hard
}

// hardStop stops a pod because of the hard threshold, without a fleet's permit or a soft budget.
func (w *world) hardStop(n *stormy) {
	w.hard++
	n.wants, n.again = false, n.at+w.relief
}

// alone is an event of a node without a fleet: it stops a pod as soon as its local budget allows it.
func (w *world) alone(n *stormy) {
	now := n.at
	if !n.wants {
		n.begin(w.grows, now)
	}
	switch {
	case now >= n.hard:
		w.hardStop(n)
		n.at = n.again
	case n.local.first > now:
		n.at = min(n.local.first, n.hard)
	default:
		n.local.take(now)
		w.stops[Local] = append(w.stops[Local], now-start)
		n.wants, n.at = false, now+w.relief
	}
}

// step is an event of a node of a fleet.
func (w *world) step(n *stormy) {
	now := n.at
	reach := w.cut == nil || !w.cut(n.id, now-start)
	if now >= n.again && !n.wants {
		n.begin(w.grows, now)
		n.renewed = now
		n.Begin(pool, now)
	}
	if n.wants && now >= n.hard {
		n.End(pool, now)
		w.know(n, false)
		w.hardStop(n)
	}
	if !n.wants {
		if contact, failing := n.Contact(); failing && contact <= now {
			w.contact(n, false, reach)
		}
		n.at = n.again
		if contact, failing := n.Contact(); failing {
			n.at = min(n.at, max(contact, now+1))
		}
		return
	}
	if n.known && !reach && now-n.renewed >= wantLasts {
		w.know(n, false) // the key has expired
	}
	contact, failing := n.Contact()
	due := failing && contact <= now || !failing && n.known && now-n.renewed >= renewWant
	turn := n.Turn(pool, now)
	switch {
	case turn.Verdict == Ask || due:
		w.contact(n, turn.Verdict == Ask, reach)
	case turn.Verdict != Hold:
		v := n.Stop(pool, now)
		w.stops[v] = append(w.stops[v], now-start)
		n.End(pool, now)
		n.wants = false
		w.know(n, false)
		n.again = now + w.relief
		return
	}
	turn = n.Turn(pool, now)
	if turn.Verdict != Hold {
		return // again at the same time
	}
	n.at = min(max(turn.Until, now+1), n.hard)
	if contact, due := n.Contact(); due {
		n.at = min(n.at, max(contact, now+1))
	} else if n.known {
		n.at = min(n.at, n.renewed+renewWant)
	}
}

// contact is a round trip of a node to the store.
func (w *world) contact(n *stormy, ask, reach bool) {
	now := n.at
	if !reach {
		n.Failed(now, now)
		return
	}
	w.know(n, n.wants)
	if n.renewed = now; !ask {
		n.Reached(now)
		return
	}
	permitted, denial := w.rates.Decide(w.view, n.zone, n.workload, Slots{w.slots[n.zone] - now, w.workloads[n.workload] - now})
	if !permitted {
		n.Denied(pool, denial, now)
		return
	}
	w.slots[n.zone] = now + Slot(w.rates.Of(w.view, n.zone))
	w.workloads[n.workload] = now + w.rates.WorkloadInterval
	n.Granted(pool, Grant{"id", w.slots[n.zone]}, now)
}

// know counts a node among those that want a stop, or not.
func (w *world) know(n *stormy, wants bool) {
	if n.known == wants {
		return
	}
	z := w.view.Zones[n.zone]
	if n.known = wants; wants {
		z.Wanting++
	} else {
		z.Wanting--
	}
	w.view.Zones[n.zone] = z
}

// peak returns the most stops within any minute.
func peak(at []time.Duration) (most int) {
	slices.Sort(at)
	first := 0
	for i, t := range at {
		for at[first] <= t-time.Minute {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// Highest peaks, in percent of 10,000 nodes per minute. Twenty normal zones permit 20 × 0.1/s = 120 stops a minute. A node's
// soft budget is a stop in 5 min, its trickle a tenth: 10,000 / 50 min = 200 if all trickle, 10,000 / 5 min = 2,000 if all have
// their local budgets, 3,333 / 5 min = 667 if a third does. A peak is higher by chance, and its sources add up.
const (
	onePercent   = 1
	allNormal    = 1.2
	allTrickle   = 3
	thirdIsLocal = 10
	allLocal     = 22
	unprotected  = 100
)

// Percent of the wishes that grow on. A leak does not stop, half of all pressure does, and a threshold that is wrong finds few
// nodes under pressure.
const (
	leaks     = 100
	pressures = 50
	wrongs    = 5
)

func storms() []storm {
	zones := func(i int) string { return fmt.Sprint("zone-", i/500) }
	rings := func(i int) string { return fmt.Sprint("ring-", i/3%20) }
	sites := func(i int) string { return fmt.Sprint("site-", i/3) }
	atOnce := func(int, *rand.Rand) time.Duration { return 0 }
	rolling := func(i int, _ *rand.Rand) time.Duration { return time.Duration(i) * hour / stormNodes }
	share := func(percent int) func(int, *rand.Rand) time.Duration {
		return func(_ int, rnd *rand.Rand) time.Duration {
			if at := random(rnd, hour); rnd.IntN(100) < percent {
				return at
			}
			return -1
		}
	}
	unrelated := func(_ int, rnd *rand.Rand) time.Duration {
		if rnd.IntN(100) < 45 {
			return 0
		}
		return -1
	}
	dead := func(from, to time.Duration) func(int, time.Duration) bool {
		return func(_ int, at time.Duration) bool { return at >= from && at < to }
	}
	third := func(i int, at time.Duration) bool { return i%3 == 0 && at >= 20*minute && at < 80*minute }
	return []storm{
		{name: "leak in an image on 30 % of the nodes", zone: zones, begins: share(30), shared: 1, relief: hour, grows: leaks, lasts: 2 * hour, most: onePercent},
		{name: "5 % under pressure, a third cut off for 1 h", zone: zones, begins: share(5), relief: hour, grows: pressures, lasts: 2 * hour, cut: third, most: onePercent},
		{name: "5 % under pressure, etcd dead for 10 min", zone: zones, begins: share(5), relief: hour, grows: pressures, lasts: hour, cut: dead(20*minute, 30*minute), most: onePercent},
		{name: "5 % under pressure, etcd dead for 1 h", zone: zones, begins: share(5), relief: hour, grows: pressures, lasts: 2 * hour, cut: dead(20*minute, 80*minute), most: onePercent},
		{name: "threshold, all at once, 15 min", zone: zones, begins: atOnce, relief: 10 * minute, grows: wrongs, lasts: 15 * minute, most: onePercent},
		{name: "unrelated pressure on 45 % of the nodes, all at once", zone: zones, begins: unrelated, relief: hour, grows: pressures, lasts: 15 * minute, most: allNormal},
		{name: "threshold, all at once, 90 min: patience ends everywhere", zone: zones, begins: atOnce, relief: 10 * minute, grows: wrongs, lasts: 90 * minute, most: allTrickle},
		{name: "threshold, zone by zone within 1 h", zone: zones, begins: rolling, relief: 10 * minute, grows: wrongs, lasts: 90 * minute, most: allTrickle},
		{name: "leak in an image on all nodes", zone: zones, begins: share(100), shared: 1, relief: hour, grows: leaks, lasts: 2 * hour, most: allTrickle},
		{name: "threshold, all at once, a third cut off for 1 h", zone: zones, begins: atOnce, relief: 10 * minute, grows: wrongs, lasts: 60 * minute, cut: third, most: thirdIsLocal},
		{name: "threshold, all at once, etcd dead for 10 min", zone: zones, begins: atOnce, relief: 10 * minute, grows: wrongs, lasts: 60 * minute, cut: dead(0, 10*minute), most: allTrickle},
		{name: "threshold, all at once, etcd dead for 1 h", zone: zones, begins: atOnce, relief: 10 * minute, grows: wrongs, lasts: 40 * minute, cut: dead(0, hour), most: allLocal},
		{name: "3,333 sites of three in 20 rings: threshold, all at once", zone: rings, begins: atOnce, relief: 10 * minute, grows: wrongs, lasts: 15 * minute, most: onePercent},
		{name: "each site a zone, 30 workloads", zone: sites, begins: atOnce, shared: 30, relief: 10 * minute, grows: wrongs, lasts: 5 * minute, most: onePercent},
		{name: "each site a zone, each node its own workload", zone: sites, begins: atOnce, relief: 10 * minute, grows: wrongs, lasts: 5 * minute, most: unprotected},
	}
}

// The soft stops of storms on 10,000 nodes, with and without the fleet, and how many became hard ones, as docs/fleet.md has
// them.
func TestStorms(t *testing.T) {
	var table strings.Builder
	table.WriteString("| storm | without: peak per min | total | became hard | with the fleet: peak per min | total | permits | trickle | local | became hard |\n|---|---|---|---|---|---|---|---|---|---|\n")
	all := storms()
	rows := make([]string, len(all))
	var group sync.WaitGroup
	for i, s := range all {
		group.Go(func() { rows[i] = s.row(t) })
	}
	group.Wait()
	table.WriteString(strings.Join(rows, ""))
	compareTable(t, table.String())
}

// row plays a storm with and without the fleet, and returns its row of the table.
func (s *storm) row(t *testing.T) string {
	without, hardWithout := s.play(false)
	with, hard := s.play(true)
	all := slices.Concat(with[Permit], with[Trickle], with[Local])
	most := peak(all)
	if percent := float64(most) * 100 / stormNodes; percent > s.most {
		t.Errorf("%s: a peak of %.2f %% of the nodes per minute, want at most %.1f %%", s.name, percent, s.most)
	}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n",
		s.name, peak(without[Local]), len(without[Local]), hardWithout, most, len(all), len(with[Permit]), len(with[Trickle]), len(with[Local]), hard)
}

// compareTable compares the table of storms in docs/fleet.md, or writes it there.
func compareTable(t *testing.T, table string) {
	t.Helper()
	const path, begin = "../../docs/fleet.md", "| storm |"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(doc), "\n"+begin)
	_, after, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		t.Fatalf("%s has no table that begins with %q", path, begin)
	}
	want := before + "\n" + table + "\n" + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	if string(doc) != want {
		t.Errorf("%s is not current (hint: go test ./guard/fleet -run TestStorms -update), want\n%s", path, table)
	}
}
