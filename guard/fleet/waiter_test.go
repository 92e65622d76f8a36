package fleet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

const (
	pool  = policy.PoolMemory
	start = 1000 * time.Hour // since boot
)

var soft = policy.Bucket{Burst: 2, Every: 5 * time.Minute}

// node is a waiter with one episode, and a fleet that answers as it is set to.
type node struct {
	*Waiter
	t    *testing.T
	now  time.Duration
	down bool
	// Requests fail and other contacts succeed, as with an etcd without space.
	refuses bool
	deny    *Denial       // nil: one request is granted every 10 s
	slot    time.Duration // taken until then
	asks    []time.Duration
}

func newNode(t *testing.T, seed uint64) *node {
	n := &node{Waiter: NewWaiter(15*time.Minute, soft, rand.New(rand.NewPCG(seed, 1))), t: t, now: start}
	n.Begin(pool, n.now)
	return n
}

// run moves to a time after the start, makes every contact and request when it is due, and stops pods as soon as the
// verdict allows it. It returns when they were stopped, since the start, by their source.
func (n *node) run(until time.Duration) (stops map[Verdict][]time.Duration) {
	n.t.Helper()
	stops = map[Verdict][]time.Duration{}
	for steps := 0; ; steps++ {
		if steps > 1_000_000 {
			n.t.Fatal("no progress")
		}
		next := start + until
		turn := n.Turn(pool, n.now)
		at, due := n.Contact()
		switch {
		case turn.Verdict == Ask:
			n.asks = append(n.asks, n.now-start)
			switch {
			case n.down || n.refuses:
				n.Refused(n.now, n.now)
			case n.deny != nil:
				n.Denied(pool, *n.deny, n.now)
			case n.slot > n.now:
				n.Denied(pool, Denial{"zone z: next permit", n.slot - n.now, 10 * time.Second, 0}, n.now)
			default:
				n.slot = n.now + 10*time.Second
				n.Granted(pool, Grant{"id", n.slot}, n.now)
			}
			continue
		case turn.Verdict != Hold:
			v := n.Stop(pool, n.now)
			stops[v] = append(stops[v], n.now-start)
			if v != turn.Verdict {
				n.t.Fatalf("after %s: %d, want %d", n.now-start, v, turn.Verdict)
			}
			continue
		case due && at <= n.now && n.down:
			n.Failed(n.now, n.now)
			continue
		case due && at <= n.now:
			n.Reached(n.now)
			continue
		case due:
			next = min(next, at)
		}
		if turn.Until > n.now {
			next = min(next, turn.Until)
		}
		if n.now = next; next == start+until {
			return stops
		}
	}
}

func full() *Denial { return &Denial{Reason: "fleet is full: 0/s"} }

// spread fails unless the values of many seeds fill the range from least to most evenly.
func spread(t *testing.T, what string, least, most time.Duration, value func(seed uint64) time.Duration) {
	t.Helper()
	const seeds = 400
	var sum time.Duration
	lo, hi := time.Duration(1<<62), time.Duration(-1<<62)
	for seed := range uint64(seeds) {
		v := value(seed)
		lo, hi, sum = min(lo, v), max(hi, v), sum+v
	}
	width := most - least
	if mid := least + width/2; lo < least || hi > most || lo > least+width/20 || hi < most-width/20 || max(sum/seeds-mid, mid-sum/seeds) > width/10 {
		t.Errorf("%s: from %s to %s, on average %s; want %s to %s", what, lo, hi, sum/seeds, least, most)
	}
}

// The first contact of an episode.
func TestFirstContactIsSpread(t *testing.T) {
	spread(t, "first contact", 0, 30*time.Second, func(seed uint64) time.Duration {
		n := newNode(t, seed)
		n.deny = full()
		n.run(31 * time.Second)
		return n.asks[0]
	})
}

// Granted.
func TestPermitEndsAtItsDeadline(t *testing.T) {
	n := newNode(t, 1)
	n.Granted(pool, Grant{"one", start + 10*time.Second}, start)
	if turn := n.Turn(pool, start+10*time.Second-1); turn != (Turn{Verdict: Permit, Until: start + 10*time.Second}) {
		t.Errorf("before the deadline: %+v", turn)
	}
	if turn := n.Turn(pool, start+10*time.Second); turn.Verdict != Ask {
		t.Errorf("at the deadline: %+v", turn)
	}
	if _, ok := n.Release(pool, start+10*time.Second); ok {
		t.Error("gave back a permit that is void")
	}
	n.Granted(pool, Grant{"two", start + time.Minute}, start+20*time.Second)
	if v := n.Stop(pool, start+21*time.Second); v != Permit || n.Counts() != (Counts{Permits: 1}) {
		t.Errorf("stopped with %d, %+v", v, n.Counts())
	}
	if v := n.Stop(pool, start+21*time.Second); v != Hold {
		t.Errorf("used a permit twice: %d", v)
	}
	n.Granted(pool, Grant{"three", start + time.Minute}, start+22*time.Second)
	if g, ok := n.End(pool, start+23*time.Second); !ok || g.ID != "three" {
		t.Errorf("the end of an episode gives back %+v", g)
	}
	if n.Granted(pool, Grant{"four", start + time.Minute}, start+24*time.Second) {
		t.Error("accepted a permit after the episode")
	}
}

// Row 1: denied. Ask again after the slot's remaining time and up to half a slot.
func TestDeniedAsksAfterTheSlot(t *testing.T) {
	spread(t, "asked again", 4*time.Second, 9*time.Second, func(seed uint64) time.Duration {
		n := newNode(t, seed)
		n.deny = &Denial{Reason: "zone z: next permit in 4s", Left: 4 * time.Second, Slot: 10 * time.Second}
		n.run(45 * time.Second)
		return n.asks[1] - n.asks[0]
	})
}

// The more nodes of a zone want a stop, the longer they spread their next requests, up to two minutes.
func TestDeniedAmongMany(t *testing.T) {
	for wanting, most := range map[int]time.Duration{1: 5 * time.Second, 10: 5 * time.Second, 100: 50 * time.Second, 5000: 2 * time.Minute} {
		spread(t, fmt.Sprintf("asked again with %d nodes", wanting), 4*time.Second, 4*time.Second+most, func(seed uint64) time.Duration {
			n := newNode(t, seed)
			n.deny = &Denial{Reason: "zone z: next permit in 4s", Left: 4 * time.Second, Slot: 10 * time.Second, Wanting: wanting}
			n.run(3 * time.Minute)
			return n.asks[1] - n.asks[0]
		})
	}
}

// Row 1: denied at rate 0. Ask again after 30 s ± 50 %.
func TestDeniedAtRateZero(t *testing.T) {
	spread(t, "asked again", 15*time.Second, 45*time.Second, func(seed uint64) time.Duration {
		n := newNode(t, seed)
		n.deny = full()
		n.Denied(pool, *n.deny, start)
		n.run(time.Minute)
		return n.asks[0]
	})
	n := newNode(t, 1)
	n.deny = full()
	n.run(time.Minute)
	if turn := n.Turn(pool, n.now); turn.Reason != "fleet is full: 0/s" {
		t.Errorf("held: %+v", turn)
	}
}

// Row 2: held for patience. No request any more, and tokens at a tenth of the local rate, the first after up to 50 min.
func TestPatienceEndsInTheTrickle(t *testing.T) {
	spread(t, "first token", 15*time.Minute, 65*time.Minute, func(seed uint64) time.Duration {
		n := newNode(t, seed)
		n.deny = full()
		stops := n.run(10 * time.Hour)
		all := stops[Trickle]
		if len(stops) != 1 || len(all) < 11 || len(all) > 12 || n.Counts() != (Counts{Trickle: len(all)}) {
			t.Fatalf("stops %v, %+v", stops, n.Counts())
		}
		if last := n.asks[len(n.asks)-1]; last >= 15*time.Minute {
			t.Fatalf("asked after %s", last)
		}
		for i := range all[1:] {
			if d := all[i+1] - all[i]; d != 50*time.Minute {
				t.Fatalf("%s between two tokens", d)
			}
		}
		return all[0]
	})
}

// Patience belongs to an episode of a pool, and a permit ends the wait.
func TestPatiencePerEpisode(t *testing.T) {
	n := newNode(t, 1)
	n.deny = full()
	n.run(14 * time.Minute)
	n.Begin(policy.PoolPIDs, n.now)
	n.run(16 * time.Minute)
	if turn := n.Turn(policy.PoolPIDs, n.now); turn.Reason != FirstContact && turn.Verdict != Ask {
		t.Errorf("another pool: %+v", turn)
	}
	if turn := n.Turn(pool, n.now); turn.Reason != "held for 15m, soft stops at a tenth" {
		t.Errorf("the pool: %+v", turn)
	}
	n.End(pool, n.now)
	n.Begin(pool, n.now)
	if turn := n.Turn(pool, n.now); turn.Reason != FirstContact {
		t.Errorf("the next episode: %+v", turn)
	}
	n.run(30 * time.Minute)
	n.Granted(pool, Grant{"id", n.now + time.Second}, n.now)
	n.Stop(pool, n.now)
	if stops := n.run(44 * time.Minute); len(stops[Trickle]) > 0 {
		t.Errorf("patience counts from before the permit: %v", stops)
	}
}

// Rows 3 to 5: alone. Held for 2 min, the trickle until 15 min, and then the local budget with its first token after up
// to 5 min.
func TestAlone(t *testing.T) {
	var trickled int
	spread(t, "first local token", 0, 5*time.Minute, func(seed uint64) time.Duration {
		n := newNode(t, seed)
		n.down = true
		stops := n.run(2 * time.Hour)
		since := n.asks[0] + 15*time.Second // the first failure came with the first request
		if lonely, alone := n.Alone(n.now); !alone || start+since != n.now-lonely {
			t.Fatalf("alone for %s", lonely)
		}
		for _, at := range stops[Trickle] {
			if at < since+2*time.Minute || at >= since+15*time.Minute {
				t.Fatalf("a token of the trickle after %s", at-since)
			}
		}
		all := stops[Local]
		if len(stops[Permit]) > 0 || n.Counts() != (Counts{Trickle: len(stops[Trickle]), Local: len(all)}) {
			t.Fatalf("stops %v, %+v", stops, n.Counts())
		}
		for i := range all[1:] {
			if d := all[i+1] - all[i]; d != 5*time.Minute {
				t.Fatalf("%s between two tokens", d)
			}
		}
		trickled += len(stops[Trickle])
		return all[0] - since - 15*time.Minute
	})
	if trickled < 70 || trickled > 140 { // 13 of 50 minutes, 400 nodes
		t.Errorf("%d of 400 nodes had a token of the trickle, want about 104", trickled)
	}
}

// Row 3: held while alone for less than 2 min.
func TestJustAlone(t *testing.T) {
	n := newNode(t, 3)
	n.down = true
	n.run(100 * time.Second)
	if turn := n.Turn(pool, n.now); turn.Verdict != Hold || turn.Reason != "alone" {
		t.Errorf("%+v", turn)
	}
}

// A node that sleeps for an hour during a round trip is not alone for an hour when that fails: it is held before it trickles.
func TestSleepIsNotAlone(t *testing.T) {
	w := NewWaiter(15*time.Minute, policy.Bucket{Burst: 2, Every: 5 * time.Minute}, rand.New(rand.NewPCG(1, 2)))
	w.Begin(policy.PoolMemory, time.Hour)
	w.Failed(time.Hour, 2*time.Hour)
	if d, alone := w.Alone(2 * time.Hour); alone {
		t.Errorf("alone for %s", d)
	}
	w.Failed(2*time.Hour+10*time.Second, 2*time.Hour+15*time.Second)
	if d, alone := w.Alone(2*time.Hour + 15*time.Second); !alone || d > ContactTimeout {
		t.Errorf("alone: %t, for %s", alone, d)
	}
}

// A node that sleeps between two contacts that fail, or during the second one, has not been alone meanwhile: its network is often
// switched off before it sleeps and not yet back when it wakes. It keeps the time that it was alone before.
func TestSleepAfterAFailure(t *testing.T) {
	const sleep = 8 * time.Hour
	for _, before := range []time.Duration{0, 5 * time.Minute} { // for how long contacts failed
		for _, during := range []bool{false, true} {
			n := newNode(t, 3)
			n.down = true
			n.Failed(start, start)
			n.run(before)
			at, _ := n.Contact()
			began := at
			if n.now = at + sleep; !during {
				began = n.now
			}
			n.Failed(began, n.now)
			if d, _ := n.Alone(n.now); d > before+30*time.Second {
				t.Errorf("failed for %s, slept during a contact: %t: alone for %s", before, during, d)
			}
			if turn := n.Turn(pool, n.now); turn.Verdict == Local || before == 0 && turn.Verdict != Hold {
				t.Errorf("failed for %s, slept during a contact: %t: %+v", before, during, turn)
			}
		}
	}
}

// A node is alone after 15 s without a successful round trip, however many failed before, and a success in between
// ends the count.
func TestAloneAfterFifteenSeconds(t *testing.T) {
	w := NewWaiter(15*time.Minute, soft, rand.New(rand.NewPCG(1, 1)))
	alone := func(at time.Duration) bool { _, ok := w.Alone(start + at); return ok }
	w.Failed(start, start+5*time.Second)
	w.Failed(start+9*time.Second, start+14*time.Second)
	if alone(14 * time.Second) {
		t.Error("alone after 14 s")
	}
	w.Reached(start + 15*time.Second)
	w.Failed(start+20*time.Second, start+25*time.Second)
	w.Failed(start+29*time.Second, start+34*time.Second)
	if alone(34 * time.Second) {
		t.Error("alone 14 s after a success and a failure")
	}
	w.Failed(start+30*time.Second, start+35*time.Second)
	if !alone(35 * time.Second) {
		t.Error("not alone after 15 s")
	}
}

// An etcd without space answers contacts, which read and renew, but no request: a node that waits is alone nevertheless.
func TestAloneWithoutSpace(t *testing.T) {
	for seed := range uint64(50) {
		n := newNode(t, seed)
		n.refuses = true
		n.run(3 * time.Minute)
		if lonely, alone := n.Alone(n.now); !alone || n.now-lonely != start+n.asks[0]+15*time.Second {
			t.Fatalf("seed %d: alone %t for %s, asked at %v", seed, alone, lonely, n.asks)
		}
		stops := n.run(time.Hour)
		for _, at := range stops[Trickle] {
			if at > 17*time.Minute {
				t.Errorf("seed %d: a token of the trickle after %s", seed, at)
			}
		}
		if len(stops[Local]) < 8 || len(stops[Permit]) > 0 || len(n.asks) > 60/2+3 {
			t.Fatalf("seed %d: stops %v, asked at %v", seed, stops, n.asks)
		}
		n.refuses = false
		if stops = n.run(time.Hour + 3*time.Minute); len(stops[Permit]) == 0 {
			t.Fatalf("seed %d: stops %v after the return, asked at %v", seed, stops, n.asks)
		}
		if _, alone := n.Alone(n.now); alone {
			t.Fatalf("seed %d: alone after a permit", seed)
		}
	}
}

// The failure of a request matters while there is one. Without, a contact that succeeds ends it.
func TestRequestsThatFailedAreForgotten(t *testing.T) {
	n := newNode(t, 1)
	n.refuses = true
	n.run(40 * time.Second)
	if _, due := n.Contact(); !due {
		t.Fatal("no contact is due")
	}
	n.Idle()
	n.Reached(n.now)
	if _, due := n.Contact(); due {
		t.Error("a contact is due without a request")
	}
}

// Nothing repeats a request that failed just before the node's patience ended. The next contact that succeeds ends the failure, so that
// one that fails much later does not make the node one that was alone since.
func TestRequestThatFailedLast(t *testing.T) {
	w := NewWaiter(15*time.Minute, policy.Bucket{Burst: 1, Every: 5 * time.Minute}, rand.New(rand.NewPCG(1, 2)))
	w.Begin(pool, start)
	now := start + 14*time.Minute + 59*time.Second
	w.Refused(now, now)
	for now = start + 15*time.Minute; now < start+time.Hour; now += 30 * time.Second {
		w.Reached(now)
	}
	w.Failed(now, now)
	if d, alone := w.Alone(now); alone || w.Turn(pool, now).Verdict == Local {
		t.Errorf("alone %t for %s, %+v", alone, d, w.Turn(pool, now))
	}
}

// The next request of a pool for another workload need not wait for the slot of the one that was denied.
func TestChangedWorkload(t *testing.T) {
	spread(t, "the request for another workload", 0, 30*time.Second, func(seed uint64) time.Duration {
		n := newNode(t, seed)
		n.Denied(pool, Denial{"workload shop/web: next permit in 5m", 5 * time.Minute, 5 * time.Minute, 0}, n.now)
		n.Changed(pool, n.now)
		n.run(time.Minute)
		return n.asks[0]
	})
	n := newNode(t, 1)
	n.Denied(pool, Denial{"zone z: next permit", time.Second, 0, 0}, n.now)
	until := n.Turn(pool, n.now).Until
	if n.Changed(pool, n.now); n.Turn(pool, n.now).Until > until {
		t.Error("a request that is due soon is put off")
	}
}

// Alone ends after 2 stable minutes. Contacts are spread over 30 s, and a failure starts the two minutes again.
func TestAloneEndsWhenStable(t *testing.T) {
	n := newNode(t, 1)
	n.down = true
	n.run(5 * time.Minute)
	n.down = false
	n.run(6*time.Minute + 30*time.Second)
	if _, alone := n.Alone(n.now); !alone || len(n.asks) > 3 {
		t.Errorf("after 1.5 stable minutes: alone %v, asked at %v", alone, n.asks)
	}
	n.down = true
	n.run(7 * time.Minute)
	n.down = false
	n.run(9 * time.Minute)
	if _, alone := n.Alone(n.now); !alone {
		t.Error("a failure did not start the two minutes again")
	}
	if stops := n.run(10 * time.Minute); len(stops[Permit]) == 0 {
		t.Errorf("after 2 stable minutes: %v", stops)
	}
	if _, alone := n.Alone(n.now); alone {
		t.Error("alone after 2 stable minutes")
	}
}

// Every return is delayed by up to 30 s.
func TestReturnsAreSpread(t *testing.T) {
	spread(t, "next contact", 0, 30*time.Second, func(seed uint64) time.Duration {
		n := newNode(t, seed)
		n.Failed(start, start+5*time.Second)
		at, due := n.Contact()
		if !due {
			t.Fatal("no contact is due")
		}
		return at - start - 5*time.Second
	})
}

// While the node is alone, its patience does not run, because it has tokens.
func TestAloneIsNotHeld(t *testing.T) {
	n := newNode(t, 1)
	n.down = true
	n.run(time.Hour)
	n.down, n.deny = false, full()
	n.run(70 * time.Minute)
	if turn := n.Turn(pool, n.now); turn.Reason != "fleet is full: 0/s" {
		t.Errorf("after an hour alone: %+v", turn)
	}
}

// Row 6: paused. No stop at all, neither by a permit nor alone, and patience does not run.
func TestPaused(t *testing.T) {
	n := newNode(t, 1)
	n.Granted(pool, Grant{"id", start + 10*time.Hour}, start)
	n.Pause(start+2*time.Hour, start)
	n.down = true
	if stops := n.run(time.Hour); len(stops) > 0 || n.Turn(pool, n.now).Reason != "soft stops are paused" {
		t.Errorf("%v, %+v", stops, n.Turn(pool, n.now))
	}
	n.Release(pool, n.now)
	n.down, n.deny = false, full()
	if stops := n.run(2*time.Hour + 14*time.Minute); len(stops) > 0 {
		t.Errorf("patience ran during a pause: %v", stops)
	}
	n.Pause(start+9*time.Hour, n.now)
	n.Pause(0, n.now) // resume
	n.deny = nil
	if stops := n.run(3 * time.Hour); len(stops[Permit]) == 0 {
		t.Errorf("after the pause: %v", stops)
	}
}

// Without an episode a waiter neither asks nor stops.
func TestNoEpisode(t *testing.T) {
	n := newNode(t, 1)
	n.End(pool, start)
	n.Denied(pool, *full(), start)
	if turn := n.Turn(pool, start+time.Hour); turn.Verdict != Hold || n.Stop(pool, start+time.Hour) != Hold {
		t.Errorf("%+v", turn)
	}
}

// A restart of the agent gives no node tokens or patience.
func TestSaved(t *testing.T) {
	for name, prepare := range map[string]func(n *node){
		"out of patience": func(n *node) { n.deny = full() },
		"alone":           func(n *node) { n.down = true },
	} {
		a, b := newNode(t, 7), newNode(t, 7)
		prepare(a)
		prepare(b)
		a.run(20 * time.Minute)
		b.run(20 * time.Minute)
		fresh := NewWaiter(15*time.Minute, soft, rand.New(rand.NewPCG(9, 9)))
		fresh.Restore(a.Save(), a.now)
		a.Waiter = fresh
		for _, v := range []Verdict{Trickle, Local} {
			stops, want := a.run(5 * time.Hour)[v], b.run(5 * time.Hour)[v]
			if len(stops) != len(want) || len(want) > 0 && stops[0] != want[0] {
				t.Errorf("%s: %v, without a restart %v", name, stops, want)
			}
		}
	}
	a := newNode(t, 7)
	a.deny = full()
	a.run(10 * time.Minute)
	a.Pause(start+time.Hour, a.now)
	fresh := NewWaiter(15*time.Minute, soft, rand.New(rand.NewPCG(9, 9)))
	fresh.Restore(a.Save(), a.now)
	if s := fresh.Save(); s.Held[pool] != 10*time.Minute || s.Paused != start+time.Hour {
		t.Errorf("saved %+v", s)
	}
}

// A bucket that is switched off and on keeps its instants, but no token from the time when it was off. With new instants,
// nodes that had a token and nodes that had none would act at the same time.
func TestTokensKeepTheirInstants(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	b := tokens{limit: trickleOf(soft)}
	b.fill(true, start, rnd)
	first := b.first
	for now := start; now < start+10*time.Hour; now += 7 * time.Minute {
		b.fill(false, now, rnd)
		b.fill(true, now, rnd)
		if wait := b.first - now; wait < 0 || wait >= 50*time.Minute || (b.first-first)%(50*time.Minute) != 0 {
			t.Fatalf("after %s: a token in %s, the first one came after %s", now-start, wait, first-start)
		}
	}
	b.take(b.first)
	next := b.first
	b.fill(false, start+10*time.Hour, rnd)
	b.fill(true, start+10*time.Hour, rnd)
	if b.first != next {
		t.Errorf("a token that was taken is back at %s, not at %s", b.first, next)
	}
}

// A shorter period applies at once. A node whose tokens came once in ten days may else be held for days after the operator has
// given it more.
func TestShorterPeriod(t *testing.T) {
	for v, period := range map[Verdict]time.Duration{Trickle: 50 * time.Minute, Local: 5 * time.Minute} {
		for seed := range uint64(100) {
			n := newNode(t, seed)
			n.SetSoft(policy.Bucket{Burst: 1, Every: 24 * time.Hour})
			if n.down = v == Local; !n.down {
				n.deny = full()
			}
			n.run(20 * time.Minute)
			n.SetSoft(soft)
			if got := len(n.run(20*time.Minute + 10*period)[v]); got < 9 || got > 11 {
				t.Errorf("seed %d: %d tokens in %s", seed, got, 10*period)
			}
		}
	}
}

// Whatever happens, a node never takes more tokens than the rates allow, and no permit that it was not given.
func TestTokensAreBounded(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		w := NewWaiter(15*time.Minute, soft, rand.New(rand.NewPCG(seed, 3)))
		now, granted := start, 0
		for range 3000 {
			now += time.Duration(rnd.Int64N(int64(time.Minute)))
			p := policy.Pool(rnd.IntN(3))
			switch rnd.IntN(12) {
			case 0, 1, 2:
				w.Begin(p, now)
			case 3:
				w.End(p, now)
			case 4, 5, 6:
				w.Failed(now, now)
			case 7:
				w.Reached(now)
			case 8:
				w.Denied(p, *full(), now)
			case 9:
				if rnd.IntN(20) == 0 && w.Granted(p, Grant{"id", now + time.Minute}, now) {
					granted++
				}
			case 10:
				if rnd.IntN(20) == 0 {
					w.Pause(now+time.Duration(rnd.Int64N(int64(time.Hour))), now)
				}
			}
			w.Stop(p, now)
		}
		c, passed := w.Counts(), now-start
		if c.Permits > granted || c.Trickle > 1+int(passed/(50*time.Minute)) || c.Local > 2+int(passed/(5*time.Minute)) {
			t.Errorf("seed %d: %+v in %s, %d granted", seed, c, passed, granted)
		}
	}
}

// Extreme budgets do not overflow.
func TestExtremeBudgets(t *testing.T) {
	for _, b := range []policy.Bucket{{}, {Burst: 1, Every: 100 * 365 * 24 * time.Hour}, {Burst: -1, Every: -1}} {
		w := NewWaiter(0, b, rand.New(rand.NewPCG(1, 1)))
		w.Begin(pool, start)
		w.Failed(start, start+time.Minute)
		w.Turn(pool, start+time.Minute)
		turn := w.Turn(pool, start+time.Hour)
		if slow := b.Every > time.Hour; turn.Until < 0 || slow != (turn.Verdict == Hold) {
			t.Errorf("%+v: %+v", b, turn)
		}
	}
}

// However often contacts fail, 10,000 nodes make 333 of them a second: when all begin to want a stop at once, while etcd is
// away, and when it answers again. Each node keeps its report and its request together, as the agent does.
func TestContactsPerSecond(t *testing.T) {
	const nodes, ends = 10_000, 20 * time.Minute
	for name, takes := range map[string]time.Duration{"refused at once": 0, "no answer": ContactTimeout} {
		t.Run(name, func(t *testing.T) {
			away := func(at time.Duration) bool { return at >= 2*time.Minute && at < 12*time.Minute }
			var begun [ends / time.Second]int // by second
			for seed := range uint64(nodes) {
				n := newNode(t, seed)
				report := n.NextContact(start)
				for n.now < start+ends {
					at, failing := n.Contact()
					turn := n.Turn(pool, n.now)
					if !failing {
						at = report
					}
					if due := at <= n.now; !due && turn.Verdict != Ask {
						if turn.Until > n.now {
							at = min(at, turn.Until)
						}
						n.now = at
						continue
					}
					if begun[(n.now-start)/time.Second]++; away(n.now - start) {
						began := n.now
						if n.now += takes; turn.Verdict == Ask {
							n.Refused(began, n.now)
						} else {
							n.Failed(began, n.now)
						}
						continue
					}
					n.Reached(n.now)
					if report = n.now + 3*time.Minute; n.Turn(pool, n.now).Verdict == Ask { // over the same connection
						n.Denied(pool, *full(), n.now)
					}
				}
			}
			for s, n := range begun {
				if n > 333+5*18 {
					t.Errorf("%d contacts in second %d, want about 333", n, s)
				}
			}
		})
	}
}

// A pause of an hour ends for all nodes at once. 10,000 nodes that want a stop then make 333 contacts a second, and one that is
// resumed early asks over the connection by which it learns that.
func TestContactsAfterAPause(t *testing.T) {
	var begun [31]int // by second
	for seed := range uint64(10_000) {
		n := newNode(t, seed)
		n.deny = full()
		n.run(time.Minute)
		n.Pause(start+time.Hour, n.now)
		asks := len(n.asks)
		n.run(time.Hour + 31*time.Second)
		for _, at := range n.asks[asks:] {
			if at < time.Hour {
				t.Fatalf("asked after %s, during the pause", at)
			}
		}
		begun[(n.asks[asks]-time.Hour)/time.Second]++
	}
	for s, n := range begun {
		if n > 333+5*18 {
			t.Errorf("%d contacts in second %d after the pause, want about 333", n, s)
		}
	}
	n := newNode(t, 1)
	n.run(time.Minute)
	n.Pause(start+time.Hour, n.now)
	n.run(10 * time.Minute)
	if n.Pause(0, n.now); n.Turn(pool, n.now).Verdict != Ask {
		t.Errorf("resumed: %+v", n.Turn(pool, n.now))
	}
}

// A mistake in fleet.toml keeps all agents from starting for an hour, while the patience of 10,000 nodes is over. The tokens
// of that hour do not make them stop pods within a minute when they are back; a short restart loses no token.
func TestTokensLapseOverALongRestart(t *testing.T) {
	for away, most := range map[time.Duration]int{time.Minute: 40, 10 * time.Minute: 40, time.Hour: 40, 24 * time.Hour: 40} {
		early, all := 0, 0
		for seed := range uint64(1000) {
			n := newNode(t, seed)
			n.deny = full()
			n.run(20 * time.Minute)
			saved := n.Save()
			n.now += away
			n.Waiter = NewWaiter(15*time.Minute, soft, rand.New(rand.NewPCG(seed, 9)))
			n.Restore(saved, n.now)
			stops := n.run(n.now - start + 51*time.Minute)
			if len(stops[Trickle]) > 0 && stops[Trickle][0] < 20*time.Minute+away+time.Minute {
				early++
			}
			all += len(stops[Trickle])
		}
		if early > most || all < 1000 {
			t.Errorf("away for %s: %d of 1000 nodes stop a pod in the first minute, want about 20; %d stops in 51 minutes", away, early, all)
		}
	}
	w := NewWaiter(15*time.Minute, soft, rand.New(rand.NewPCG(1, 1)))
	w.Begin(pool, start)
	w.Restore(Saved{Held: map[policy.Pool]time.Duration{pool: time.Hour}, Trickle: SavedTokens{On: true, First: start - time.Second}}, start)
	if v := w.Stop(pool, start); v != Trickle {
		t.Errorf("a token that came a second before the restart: %d", v)
	}
}

// Permits that come too late to be used do not end the patience of an episode: etcd answers so slowly that each has half a
// millisecond left.
func TestLatePermitsDoNotEndPatience(t *testing.T) {
	n := newNode(t, 1)
	for n.now < start+66*time.Minute {
		switch turn := n.Turn(pool, n.now); turn.Verdict {
		case Ask:
			n.now += 9900 * time.Millisecond
			n.Granted(pool, Grant{"id", n.now + 500*time.Microsecond}, n.now)
			n.now += time.Millisecond // until the guard fetches it
		case Hold:
			n.now = max(turn.Until, n.now+time.Millisecond)
		case Trickle:
			return
		default:
			t.Fatalf("after %s: %+v", n.now-start, turn)
		}
	}
	t.Error("no stop in 66 minutes")
}
