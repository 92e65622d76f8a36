package policy

import (
	"slices"
	"testing"
	"time"
)

// scene is a pool one second after a sample. Amounts are in MiB for memory, swap and bytes of disks, in tasks for
// PIDs and in inodes.
type scene struct {
	signal Signal
	lack   int64 // deficit of the single threshold; 0 = 100
	beyond int64 // minimum reclaim on top of it
	fell   int64 // how far the signal fell since the sample
	peak   int64 // how much higher it was half a second ago; 0 = it was not read
	last   int64 // how far it fell since the pass before; 0 = there was no such pass, unless it stood still
	still  bool
	due    []Met // instead of signal, lack and beyond; all with the same fall
	keys   []Key
	pods   []pod
}

// pod is within its request unless its use is above req.
type pod struct {
	id        string
	use, grew int64
	req       int64
	priority  int64
	protected bool
	unknown   bool
	back      bool // came back
	survived  bool
	qos       QoS
	created   time.Duration // 0 = older than the boot
}

const ample = 1 << 20 // request of a pod that is within it

func unitOf(s Signal) int64 {
	if r := s.Resource(); r == ResourcePIDs || r == ResourceInodes {
		return 1
	}
	return mi
}

func (p pod) candidate(unit, use int64) Candidate {
	disk := DiskUsage{Rootfs: Exactly(use * unit), Logs: Exactly(0), Volumes: Exactly(0)}
	amount := Known(use * unit)
	if p.unknown {
		disk, amount = DiskUsage{}, Amount{}
	}
	c := Candidate{
		ID: p.id, QoS: p.qos, Priority: p.priority, MemoryRequest: p.req * unit, StorageRequest: p.req * unit, Created: -1,
		Memory: amount, PIDs: amount, Disk: disk, Inodes: disk, Survived: p.survived, CameBack: p.back,
	}
	if p.protected {
		c.Protection = "static pod"
	}
	if p.created > 0 {
		c.Created = p.created
	}
	return c
}

// decide returns the decision for the scene, whose sample is of 10 s and whose pass is of 11 s.
func (s *scene) decide() Decision {
	var was, is []Candidate
	due := s.due
	if due == nil {
		lack := s.lack
		if lack == 0 {
			lack = 100
		}
		due = []Met{{Threshold: Threshold{Signal: s.signal}, Deficit: lack, Lack: lack + s.beyond}}
	}
	for _, p := range s.pods {
		unit := unitOf(due[0].Signal)
		if p.created == 0 {
			was = append(was, p.candidate(unit, p.use-p.grew))
		}
		is = append(is, p.candidate(unit, p.use))
	}
	q := Shortage{Keys: s.keys, Samples: &Samples{}, Now: 11 * second}
	before, now := &Observations{}, &Observations{}
	for _, m := range due {
		unit := unitOf(m.Signal)
		m.Deficit, m.Lack = m.Deficit*unit, m.Lack*unit
		before[m.Signal], now[m.Signal] = read(1<<50+s.fell*unit, 1<<60), read(1<<50, 1<<60)
		q.Due = append(q.Due, m)
		if s.last != 0 || s.still {
			q.Before = &Observations{}
			q.Before[m.Signal] = read(1<<50+s.last*unit, 1<<60)
		}
	}
	q.Observed = now
	q.Samples.Add(10*second, before, was, Amount{})
	if s.peak != 0 {
		between := *now
		for _, m := range q.Due {
			between[m.Signal].Available += s.peak * unitOf(m.Signal)
		}
		q.Samples.Add(10*second+500*time.Millisecond, &between, is, Amount{})
	}
	return Decide(is, q)
}

// decision is what is expected of a scene.
type decision struct {
	name   string // the sentence of the contract, or its part
	scene  scene
	victim string
	why    Why
	held   string
}

func checkDecisions(t *testing.T, vs []decision) {
	t.Helper()
	for _, v := range vs {
		t.Run(v.name, func(t *testing.T) {
			d := v.scene.decide()
			victim := ""
			if d.Victim != nil {
				victim = d.Victim.ID
			}
			if victim != v.victim || d.Why != v.why || d.Held != v.held {
				t.Errorf("chose %q by %d, held %q; want %q by %d, held %q\n%+v", victim, d.Why, d.Held, v.victim, v.why, v.held, d)
			}
		})
	}
}

func TestNeed(t *testing.T) {
	threshold := Threshold{Signal: MemoryAvailable, Value: Bytes(100), MinReclaim: Bytes(50)}
	never := Threshold{Signal: MemoryAvailable, Value: Bytes(100), MinReclaim: Bytes(900)}
	stall := Threshold{Signal: MemoryStall, Value: Percent(80)}
	for _, v := range []struct {
		name                string
		threshold           Threshold
		before, now         int64 // available
		fill, deficit, need int64
	}{
		{"deficit to the threshold, need to the target", threshold, 30, 30, 0, 70, 120},
		{"inside the minimum reclaim, deficit to the target", threshold, 100, 120, 0, 30, 30},
		{"need = target − available + fill × horizon", threshold, 70, 30, 40, 70, 160},
		{"fill is never negative", threshold, 20, 30, 0, 70, 120},
		{"a target at the capacity can never be met", never, 30, 30, 0, 70, 70},
		{"a target just below it can", Threshold{Signal: MemoryAvailable, Value: Bytes(100), MinReclaim: Bytes(899)}, 30, 30, 0, 70, 969},
		{"a stall has no amount of its own", stall, 990, 0, 0, 9, 170}, // floor 200, memory 30
	} {
		w := watch{ts: []Threshold{v.threshold}, settings: Settings{StallFloor: Percent(20)}}
		var before, now Observations
		before[v.threshold.Signal], now[v.threshold.Signal] = read(v.before, 1000), read(v.now, 1000)
		now[MeminfoAvailable] = read(30, 1000)
		w.at(0, one(MemoryAvailable, read(0, 1000)))
		p := w.at(second, &now)
		q := Shortage{Due: p.Met, Observed: &now, Samples: &Samples{}, Now: second}
		q.Samples.Add(0, &before, nil, Amount{})
		d := Decide(nil, q)
		if d.Fill != v.fill || d.Deficit != v.deficit || d.Need != v.need || d.Helps != (v.need+19)/20 || !p.Met[0].Due {
			t.Errorf("%s: %+v", v.name, d)
		}
	}
	disk := scene{signal: NodeFSInodesFree, fell: 7, pods: []pod{{id: "a", use: 1000}}}
	if d := disk.decide(); d.Fill != 7 || d.Need != 170 || d.Outside != 0 {
		t.Errorf("on a disk the horizon is 10 s: %+v", d)
	}
}

func TestMinimumReclaimThatCanNeverBeMet(t *testing.T) {
	for _, v := range []struct {
		name         string
		value, extra Quantity
		target       int64
		never        bool
	}{
		{"no minimum reclaim", Bytes(1000), Quantity{}, 1000, false},
		{"below the capacity", Bytes(100), Bytes(899), 999, false},
		{"to the capacity", Bytes(100), Bytes(900), 100, true},
		{"above the capacity", Percent(50), Percent(60), 500, true},
	} {
		m := Threshold{Signal: MemoryAvailable, Value: v.value, MinReclaim: v.extra}
		if got := m.Target(1000); got != v.target || m.Unreachable(1000) != v.never {
			t.Errorf("%s: target %d, unreachable %t", v.name, got, m.Unreachable(1000))
		}
		if got := Relieved(m, read(v.target, 1000)); !got || Relieved(m, read(v.target-1, 1000)) {
			t.Errorf("%s: relieved %t at the target", v.name, got)
		}
	}
}

// Candidates are not protected, their usage is known, their yield reaches the floor, and no stop of them within the
// last minute killed nothing.
func TestCandidates(t *testing.T) {
	for _, s := range Signals() {
		floor := map[Resource]int64{ResourceMemory: mi, ResourceDisk: mi, ResourceInodes: 32, ResourcePIDs: 1}[s.Resource()]
		usage := func(n int64) Candidate {
			c := pod{}.candidate(1, n)
			if s.IsEvidence() {
				c.Swap = Known(0)
			}
			return c
		}
		cached := usage(2*floor - 1)
		cached.ActiveFile = floor
		tooSmall := ""
		if SingleFS.Pool(s) == PoolMemory {
			tooSmall = ExcludedTooSmall
		}
		protected, unknown, survived := usage(floor), pod{unknown: true}.candidate(1, 0), usage(floor)
		protected.Protection, survived.Survived = "static pod", true
		ended := usage(100 * floor)
		ended.Ended = true
		for name, v := range map[string]struct {
			c    Candidate
			want string
		}{
			"at the floor": {usage(floor), ""}, "below it": {usage(floor - 1), ExcludedTooSmall}, "nothing": {usage(0), ExcludedTooSmall},
			"yield below it": {cached, tooSmall}, "protected": {protected, "static pod"}, "unknown": {unknown, ExcludedUnknown},
			"survived": {survived, ExcludedSurvived}, "ended": {ended, ExcludedEnded},
		} {
			v.c.ID = "x"
			if got := Rank([]Candidate{v.c}, s, SingleFS, nil)[0]; got.Excluded != v.want || (got.Position == 1) != (v.want == "") {
				t.Errorf("%s, %s: excluded %q, want %q", s, name, got.Excluded, v.want)
			}
		}
		// Images belong to no pod: with a split imagefs, no stop frees any.
		if r := Rank([]Candidate{usage(100 * gi)}, s, SplitFS, nil)[0]; (r.Excluded == ExcludedTooSmall) != (s == ImageFSAvailable || s == ImageFSInodesFree) {
			t.Errorf("%s with a split imagefs: excluded %q", s, r.Excluded)
		}
	}
}

// Rule 1. The need is 100 + the fall; the pods' growth explains the fall, so nothing grows outside.
func TestCulprit(t *testing.T) {
	leak := func(over bool) pod {
		p := pod{id: "leak", use: 900, grew: 110, priority: 9}
		if !over {
			p.req = ample
		}
		return p
	}
	idle := func(use int64) pod { return pod{id: "idle", use: use} }
	more := func(s scene, pods ...pod) scene { s.pods = append(slices.Clone(s.pods), pods...); return s }
	above := scene{fell: 110, pods: []pod{leak(true)}}   // need 210; 60 s are 100 + 60 × 110 = 6700
	within := scene{fell: 110, pods: []pod{leak(false)}} // 10 s are 1200
	const minuteOf, tenOf = 100 + 60*110, 100 + 10*110
	withKeys := func(s scene, keys ...Key) scene { s.keys = keys; return s }
	other := func(signal Signal, s scene) scene { s.signal = signal; return s }
	grew := func(n int64) scene {
		return scene{fell: 100, pods: []pod{{id: "leak", use: 900, grew: n, priority: 9}, {id: "idle", use: 500, grew: 100 - n}}}
	}
	checkDecisions(t, []decision{
		{"growth × horizon ≥ need / 2", grew(100), "leak", ByCulprit, ""},
		{"growth × horizon < need / 2", grew(99), "idle", ByRank, ""},
		{"a culprit above its request is the victim", more(above, idle(minuteOf-1)), "leak", ByCulprit, ""},
		{"unless those before it could carry the pool for 60 s", more(above, idle(minuteOf)), "idle", ByRank, ""},
		{"those behind it carry nothing", more(above, pod{id: "behind", use: minuteOf, priority: 10}), "leak", ByCulprit, ""},
		{"those within their request rank behind it", more(above, pod{id: "covered", use: minuteOf, req: ample}), "leak", ByCulprit, ""},
		{"protected pods carry nothing", more(above, pod{id: "protected", use: minuteOf, protected: true}), "leak", ByCulprit, ""},
		{"a culprit within its request is the victim", more(within, idle(tenOf-1)), "leak", ByCulprit, ""},
		{"only when those above theirs could not carry it for 10 s", more(within, idle(tenOf)), "idle", ByRank, ""},
		{"whatever their priority", more(within, pod{id: "idle", use: tenOf, priority: 10}), "idle", ByRank, ""},
		{"those within theirs carry nothing", more(within, pod{id: "covered", use: tenOf, req: ample}), "leak", ByCulprit, ""},
		{"the largest growth first", scene{fell: 300, pods: []pod{
			{id: "slower", use: 500, grew: 220}, {id: "faster", use: 500, grew: 280, priority: 9}, {id: "shrinks", use: 50, grew: -50, req: ample},
		}}, "faster", ByCulprit, ""}, // need 400: both are culprits
		{"the next culprit where the first can wait", scene{fell: 220, pods: []pod{
			{id: "faster", use: 2000, grew: 180, req: ample}, {id: "slower", use: 2500, grew: 160}, {id: "shrinks", use: 20, grew: -120, req: ample},
		}}, "slower", ByCulprit, ""},
		{"a younger sandbox has grown by all that it uses", scene{fell: 110, pods: []pod{
			{id: "leak", use: 110, priority: 9, created: 10*second + second/2}, idle(2000),
		}}, "leak", ByCulprit, ""},
		{"a young one that is in no sample has grown since it was created", scene{fell: 110, pods: []pod{
			{id: "leak", use: 1100, priority: 9, created: second}, idle(2000),
		}}, "leak", ByCulprit, ""},
		{"an older one that is in no sample is unknown", scene{fell: 110, pods: []pod{
			{id: "leak", use: 1100, priority: 9, created: second - 1}, idle(2000),
		}}, "idle", ByRank, ""},
		{"a fast leak goes even though relief is not attainable", scene{lack: 5000, fell: 10_000, pods: []pod{
			{id: "leak", use: 9000, grew: 8000, priority: 9}, idle(100),
		}}, "leak", ByCulprit, ""},
		{"a culprit needs no yield of need / 20", scene{beyond: 100_000, fell: 110_000, pods: []pod{
			{id: "leak", use: 8000, grew: 110_000, priority: 9}, idle(20_000),
		}}, "leak", ByCulprit, ""},
		{"a survivor is no culprit", scene{fell: 110, pods: []pod{
			{id: "leak", use: 900, grew: 110, priority: 9, survived: true}, idle(500),
		}}, "idle", ByRank, ""},
		{"a list without culprit gives the kubelet's order", withKeys(more(above, idle(500)), KeyOverRequest, KeyPriority, KeyUsage), "idle", ByRank, ""},
		{"culprit may stand anywhere in the list", withKeys(more(above, idle(500)), KeyPriority, KeyCulprit), "leak", ByCulprit, ""},
		{"PIDs", other(PIDAvailable, more(above, idle(500))), "leak", ByCulprit, ""},
		{"never on a disk", withKeys(other(NodeFSAvailable, more(above, idle(500))), KeyCulprit, KeyPriority), "idle", ByRank, ""},
	})
	first, waits := more(above, idle(500)), more(above, idle(minuteOf))
	d := first.decide()
	if d.Ranked[0].ID != "leak" || d.Ranked[0].Position != 1 || keyOf(t, &d.Ranked[0], KeyCulprit) != 1 || keyOf(t, &d.Ranked[1], KeyCulprit) != 0 ||
		d.Ranked[1].Position != 2 || d.Culprit != d.Victim || d.Victim != &d.Ranked[0] || d.Victim.Growth != Known(110*mi) {
		t.Errorf("the culprit is not the first in the order: %+v", d)
	}
	if d := waits.decide(); d.Culprit == nil || d.Culprit.ID != "leak" || d.Ranked[0].ID != "idle" || keyOf(t, d.Culprit, KeyCulprit) != 0 {
		t.Errorf("a culprit that waits is not shown, or ranks first: %+v", d)
	}
}

// If the pods that rank before a culprit must not be stopped now, the culprit is the victim: the fastest one above
// its request. One within its request is not, while those above theirs could carry the pool for 10 s. So is a pod
// that is no culprit, if it uses up what is left before they may be stopped, within ten seconds.
func TestTakeCulprit(t *testing.T) {
	before, leak := pod{id: "before", use: 10_000}, pod{id: "leak", use: 900, grew: 110, priority: 9}
	covered, shrinks := pod{id: "covered", use: 900, grew: 120, req: ample}, pod{id: "shrinks", use: 5, grew: -130}
	slower := pod{id: "slower", use: 900, grew: 105, priority: 8}
	slow, slowest := pod{id: "slow", use: 900, grew: 5, priority: 9}, pod{id: "slowest", use: 900, grew: 4, priority: 8}
	starts := pod{id: "starts", use: 8, created: 10*second + 1, priority: 9}
	for _, v := range []struct {
		name   string
		pods   []pod
		signal Signal
		left   int64 // MiB or tasks
		wait   time.Duration
		want   string // "" = none is taken
	}{
		{name: "a culprit above its request", pods: []pod{before, leak}, want: "leak"},
		{name: "one within its request", pods: []pod{before, covered}},
		{name: "one within its request grows faster", pods: []pod{before, leak, covered, shrinks}, want: "leak"},
		{name: "the fastest of those above theirs", pods: []pod{before, slower, leak}, want: "leak"},
		{name: "no culprit", pods: []pod{before}},
		{name: "the culprit is the victim already", pods: []pod{leak}},
		{name: "a protected one", pods: []pod{before, {id: "leak", use: 900, grew: 110, protected: true}}},
		{name: "it uses up what is left before the wait is over", pods: []pod{before, slow}, left: 25, wait: 5 * second, want: "slow"},
		{name: "the same for PIDs", signal: PIDAvailable, pods: []pod{before, slow}, left: 25, wait: 5 * second, want: "slow"},
		{name: "the wait is over before that", pods: []pod{before, slow}, left: 25, wait: 4 * second},
		{name: "within ten seconds", pods: []pod{before, slow}, left: 50, wait: time.Hour, want: "slow"},
		{name: "later than in ten seconds", pods: []pod{before, slow}, left: 51, wait: time.Hour},
		{name: "the wait does not end with time", pods: []pod{before, slow}, left: 1},
		{name: "the fastest uses it up", pods: []pod{before, slowest, slow}, left: 40, wait: 10 * second, want: "slow"},
		{name: "it is within its request", pods: []pod{before, {id: "slow", use: 900, grew: 5, req: ample}}, left: 1, wait: 10 * second},
		{name: "nothing grows", pods: []pod{before}, left: 1, wait: 10 * second},
		{name: "a new sandbox has used that to start", pods: []pod{before, starts}, left: 25, wait: 5 * second},
		{name: "a new sandbox grows faster", pods: []pod{before, starts, slow}, left: 25, wait: 5 * second, want: "slow"},
		{name: "a new sandbox uses as much as is left", pods: []pod{before, starts}, left: 8, wait: 5 * second, want: "starts"},
		{name: "a new sandbox, and the wait does not end with time", pods: []pod{before, starts}, left: 8},
		{name: "a stall has no amount", signal: MemoryStall, pods: []pod{before, slow}, left: 1, wait: 10 * second},
	} {
		s := scene{fell: 110, pods: v.pods, due: []Met{{Threshold: Threshold{Signal: v.signal}, Deficit: 100, Lack: 100, Available: v.left * unitOf(v.signal)}}}
		d := s.decide()
		victim := id(d.Victim)
		if taken := d.TakeCulprit(v.wait); taken != (v.want != "") || !taken && id(d.Victim) != victim {
			t.Errorf("%s: taken: %t, the victim is %s", v.name, taken, id(d.Victim))
		} else if taken && (victim == v.want || d.Victim.ID != v.want || d.Why != ByCulprit || d.Victim != &d.Ranked[0] || d.Culprit != d.Victim || d.Victim.Position != 1) {
			t.Errorf("%s: %s by %d instead of %s: %+v", v.name, id(d.Victim), d.Why, victim, d)
		}
	}
}

// Rule 2, about signals that recover by themselves.
func TestRecovers(t *testing.T) {
	idle := []pod{{id: "idle", use: 500}}
	two := scene{due: []Met{
		{Threshold: Threshold{Signal: MemoryAvailable}, Deficit: 300, Lack: 300}, {Threshold: Threshold{Signal: AllocatableMemoryAvailable}, Deficit: 100, Lack: 400},
	}, fell: -150, last: -1, pods: idle}
	checkDecisions(t, []decision{
		{"rises by the deficit within a second, and still rises", scene{fell: -100, last: -1, pods: idle}, "", ByRank, HeldRecovers},
		{"rises by less", scene{fell: -99, last: -1, pods: idle}, "idle", ByRank, ""},
		{"falls again", scene{fell: -100, last: 1, pods: idle}, "idle", ByRank, ""},
		{"no pass before", scene{fell: -100, pods: idle}, "idle", ByRank, ""},
		{"each threshold by itself", two, "idle", ByRank, ""},
		{"also if relief is not attainable", scene{fell: -100, last: -1, pods: []pod{{id: "idle", use: 5}}}, "", ByRank, HeldRecovers},
		{"not for a culprit", scene{fell: -100, last: -1, pods: []pod{{id: "leak", use: 900, grew: 60}}}, "leak", ByCulprit, ""},
		{"a disk rises by the deficit within 30 s", scene{signal: NodeFSAvailable, lack: 90, fell: -3, last: -1, pods: idle}, "", ByRank, HeldRecovers},
		{"a disk rises by less", scene{signal: NodeFSAvailable, lack: 91, fell: -3, last: -1, pods: idle}, "idle", ByRank, ""},
		{"a disk has not risen since the last pass", scene{signal: NodeFSAvailable, lack: 90, fell: -3, still: true, pods: idle}, "", ByRank, HeldRecovers},
		{"others write to a disk meanwhile", scene{signal: NodeFSAvailable, lack: 90, fell: -3, last: 1, pods: idle}, "", ByRank, HeldRecovers},
		{"its inodes", scene{signal: ImageFSInodesFree, lack: 90, fell: -3, last: -1, pods: idle}, "", ByRank, HeldRecovers},
	})
	if d := two.decide(); d.Need != 300*mi {
		t.Errorf("the threshold that recovers counts: %+v", d)
	}
}

// Rule 2, about relief.
func TestAttainable(t *testing.T) {
	outside := func(pods ...pod) scene { return scene{fell: 10, pods: pods} } // 100 + 10 × 10
	hard := func(s Signal, deficit, lack int64) Met {
		return Met{Threshold: Threshold{Signal: s}, Deficit: deficit, Lack: lack}
	}
	idle := func(use int64) pod { return pod{id: "idle", use: use} }
	protected, unknown, huge := pod{id: "p", use: 150, protected: true}, pod{id: "u", unknown: true}, pod{id: "p", use: 1, protected: true}
	two := scene{due: []Met{hard(MemoryAvailable, 300, 900), hard(AllocatableMemoryAvailable, 100, 100)}, pods: []pod{idle(200)}}
	both := two
	both.pods = []pod{idle(200), {id: "more", use: 100, priority: 1}}
	checkDecisions(t, []decision{
		{"the yields are the deficit and 10 s of the outside fill", outside(idle(120), pod{id: "b", use: 80}), "idle", ByRank, ""},
		{"the yields are less", outside(idle(120), pod{id: "b", use: 79}), "", ByRank, HeldOutside},
		{"the yields are what was taken outside within ten seconds", scene{peak: 100, pods: []pod{idle(200)}}, "idle", ByRank, ""},
		{"the yields are less than was taken outside", scene{peak: 101, pods: []pod{idle(200)}}, "", ByRank, HeldOutside},
		{"what the pods grow by is not outside", outside(pod{id: "idle", use: 100, grew: 10}), "idle", ByRank, ""},
		{"each threshold by itself", two, "idle", ByRank, ""},
		{"usage unknown if any unprotected pod's is", outside(idle(99), unknown, protected), "", ByRank, HeldUnknown},
		{"an unknown protected pod does not count", outside(idle(99), pod{id: "p", unknown: true, protected: true}), "", ByRank, HeldOutside},
		{"protected if lifting the protections finds a victim", outside(idle(50), protected), "", ByRank, HeldProtected},
		{"outside pods if it does not", outside(idle(50), huge), "", ByRank, HeldOutside},
		{"protected if the culprit is", scene{lack: 900, fell: 900, pods: []pod{{id: "p", use: 900, grew: 900, protected: true}}}, "", ByRank, HeldProtected},
		{"protected if it has taken what is noted as taken outside", scene{fell: 300, peak: 1, beyond: 1000, pods: []pod{idle(50), {id: "p", use: 300, grew: 300, protected: true}}}, "", ByRank, HeldProtected},
		{"no pods", outside(), "", ByRank, HeldOutside},
	})
	if d := two.decide(); d.Met.Signal != AllocatableMemoryAvailable || d.Deficit != 100*mi || d.Need != 100*mi || !d.Attainable {
		t.Errorf("the threshold that is not attainable counts: %+v", d)
	}
	if d := both.decide(); d.Met.Signal != MemoryAvailable || d.Deficit != 300*mi || d.Need != 900*mi || d.Tiers[0] != 300*mi {
		t.Errorf("the pool's need is not the largest: %+v", d)
	}
	held := outside(idle(199))
	if d := held.decide(); d.Attainable || d.Outside != 10*mi || d.Deficit != 100*mi || d.Need != 110*mi {
		t.Errorf("a pass that is held shows %+v", d)
	}
}

// A hold is doubtful while the pods that it is about cover the deficit, and only what may be taken outside them speaks against it.
func TestDoubtfulHold(t *testing.T) {
	scenes := func(fell int64, pods ...pod) scene { return scene{fell: fell, pods: pods} } // the deficit is 100
	idle := func(use int64) pod { return pod{id: "idle", use: use} }
	protected := func(use, grew int64) pod { return pod{id: "p", use: use, grew: grew, protected: true} }
	for name, c := range map[string]struct {
		scene    scene
		held     string
		doubtful bool
	}{
		"outside, the pods cover it":                {scenes(10, idle(100)), HeldOutside, true},
		"outside, they do not":                      {scenes(10, idle(99)), HeldOutside, false},
		"outside, with the protected ones they do":  {scenes(90, idle(50), protected(50, 0)), HeldOutside, true},
		"outside, not even with the protected ones": {scenes(90, idle(50), protected(49, 0)), HeldOutside, false},
		"protected, the others cover it":            {scenes(90, idle(100), protected(900, 90)), HeldProtected, true},
		"protected, the others do not":              {scenes(90, idle(99), protected(900, 90)), HeldProtected, false},
		"a usage is unknown":                        {scenes(90, idle(99), pod{id: "u", unknown: true}), HeldUnknown, false},
		"a pod is stopped, nothing is held":         {scenes(0, idle(100)), "", false},
	} {
		if d := c.scene.decide(); d.Held != c.held || d.Doubtful != c.doubtful {
			t.Errorf("%s: held by %q, doubtful %t", name, d.Held, d.Doubtful)
		}
	}
}

// In a pool, what a pod uses and gives back depends on the signal. If the first due threshold is not attainable, the pods are
// ranked for the one that is, and the culprit is ranked for the one that it fills.
func TestTheOrderOfTheThresholdThatIsActedOn(t *testing.T) {
	pods := func(grown int64) []Candidate {
		return []Candidate{
			{ID: "apart", Created: -1, Memory: Known(2 * gi), Swap: Known(0), Apart: true},
			{ID: "swapped", Created: -1, Memory: Known(100 * mi), Swap: Known(6 * gi)},
			{ID: "inside", Created: -1, Memory: Known(gi + grown), Swap: Known(0), MemoryRequest: 2 * gi},
		}
	}
	for _, v := range []struct {
		second Signal
		grew   int64
		victim string
		why    Why
		tiers  []int64
	}{
		{AllocatableMemoryAvailable, 0, "swapped", ByRank, []int64{100 * mi, gi}},
		{MemoryStall, 0, "swapped", ByRank, []int64{8*gi + 100*mi, gi}},
		{AllocatableMemoryAvailable, 150 * mi, "inside", ByCulprit, []int64{100 * mi, gi + 150*mi}},
	} {
		q := lacking(MemoryAvailable, 9*gi)
		q.Due = append(q.Due, Met{Threshold: Threshold{Signal: v.second}, Deficit: 150 * mi, Lack: 200 * mi})
		q.Now = minute
		q.Samples.Add(q.Now-second, q.Observed, pods(0), Amount{})
		d := Decide(pods(v.grew), q)
		if id(d.Victim) != v.victim || d.Why != v.why || d.Met.Signal != v.second || d.Need != 200*mi || !slices.Equal(d.Tiers, v.tiers) {
			t.Errorf("%s: %q is stopped for %s (%d), tiers %v, need %d", v.second, id(d.Victim), d.Met.Signal, d.Why, d.Tiers, d.Need)
		}
		if apart := slices.IndexFunc(d.Ranked, func(r Ranked) bool { return r.ID == "apart" }); (d.Ranked[apart].Excluded == "") != (v.second == MemoryStall) {
			t.Errorf("%s: %+v", v.second, d.Ranked[apart])
		}
	}
}

// Rule 3.
func TestTier(t *testing.T) {
	above := func(use, priority int64) pod { return pod{id: "above", use: use, priority: priority} }
	within := pod{id: "within", use: 1000, req: ample}
	with := func(keys []Key, pods ...pod) scene { return scene{pods: pods, keys: keys} }
	odd := scene{lack: 101, pods: []pod{above(50, 0), within}}
	pids := scene{signal: PIDAvailable, pods: []pod{above(49, 1), {id: "within", use: 1000, req: ample}}}
	checkDecisions(t, []decision{
		{"the first tier yields half the deficit", with(nil, above(50, 9), within), "above", ByRank, ""},
		{"it yields less", with(nil, above(49, 0), within), "within", ByRank, ""},
		{"half of an odd deficit", odd, "within", ByRank, ""},
		{"nothing is above its request", with(nil, within), "within", ByRank, ""},
		{"all are above", with(nil, above(100, 0)), "above", ByRank, ""},
		{"over_request is the first key", with([]Key{KeyOverRequest, KeyPriority}, above(49, -1), within), "within", ByRank, ""},
		{"after culprit", with([]Key{KeyCulprit, KeyOverRequest}, above(49, -1), within), "within", ByRank, ""},
		{"otherwise one tier", with([]Key{KeyPriority, KeyOverRequest}, above(49, -1), within), "above", ByRank, ""},
		{"PIDs have one tier", pids, "within", ByRank, ""}, // a lower priority
		{"a Guaranteed pod is never above its request", with(nil, pod{id: "guaranteed", use: 500, qos: Guaranteed, priority: -1}, above(50, 9)), "above", ByRank, ""},
		{"an unknown request counts as 0", with(nil, pod{id: "unknown request", use: 51, priority: 9}, within), "unknown request", ByRank, ""},
	})
	tiers := with(nil, above(49, 0), within)
	one := with([]Key{KeyPriority}, above(49, 0), within)
	if d, e := tiers.decide(), one.decide(); !slices.Equal(d.Tiers, []int64{49 * mi, 1000 * mi}) || !slices.Equal(e.Tiers, []int64{1049 * mi}) {
		t.Errorf("tiers %v and %v", d.Tiers, e.Tiers)
	}
}

// Rule 4.
func TestChooseByRank(t *testing.T) {
	helps := func(id string, use, priority int64) pod { return pod{id: id, use: use, priority: priority} }
	back := func(use, priority int64) pod { return pod{id: "back", use: use, priority: priority, back: true} }
	// A deficit of 100, of which a twentieth is 5.
	some := func(pods ...pod) scene { return scene{pods: pods} }
	far := func(pods ...pod) scene { return scene{beyond: 9900, pods: pods} } // a need of 10,000, of which a twentieth is 500
	checkDecisions(t, []decision{
		{"the first candidate", some(helps("b", 200, 1), helps("a", 100, 0)), "a", ByRank, ""},
		{"with yield ≥ need / 20", some(helps("a", 5, 0), helps("b", 200, 1)), "a", ByRank, ""},
		{"not one with less", some(helps("a", 4, 0), helps("b", 200, 1)), "b", ByRank, ""},
		{"a sandbox that came back is considered before", some(helps("a", 100, 0), back(5, 9)), "back", ByCameBack, ""},
		{"if it reaches need / 20", some(helps("a", 100, 0), back(4, 9)), "a", ByRank, ""},
		{"in its tier", some(helps("a", 100, 0), pod{id: "back", use: 200, req: ample, back: true}), "a", ByRank, ""},
		{"the first of those that came back", some(back(50, 1), pod{id: "first", use: 50, back: true}), "first", ByCameBack, ""},
		{"if none reaches need / 20, the tier's first", far(helps("a", 60, 0), helps("b", 499, 1)), "a", ByRank, ""},
		{"even if another came back", far(helps("a", 60, 0), back(499, 1)), "a", ByRank, ""},
		{"one that reaches it", far(helps("a", 60, 0), helps("b", 500, 1)), "b", ByRank, ""},
		{"in the second tier, too", far(helps("above", 49, 0), pod{id: "little", use: 99, req: ample}, pod{id: "more", use: 500, req: ample, priority: 1}), "more", ByRank, ""},
	})
}

// The culprit is the first rank key of memory, swap and PIDs by default, and of nothing else.
func TestCulpritIsTheFirstKeyByDefault(t *testing.T) {
	for _, s := range Signals() {
		keys := DefaultKeys(s.Resource())
		if i := slices.Index(keys, KeyCulprit); (i == 0) != (SingleFS.Pool(s) <= PoolPIDs) || i > 0 {
			t.Errorf("%s: %v", s, keys)
		}
	}
}
