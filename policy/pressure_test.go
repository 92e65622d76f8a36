package policy

import (
	"slices"
	"testing"
	"time"
)

const minute = time.Minute

// TestVectorsD: T = memory 1Gi, minimum reclaim 500Mi. "enforce" means that the threshold was met
// before, so that the minimum reclaim applies.
func TestVectorsD(t *testing.T) {
	threshold := Threshold{Signal: MemoryAvailable, Value: Bytes(gi), MinReclaim: Bytes(500 * mi)}
	for _, v := range []struct {
		id        string
		none      bool // no thresholds
		enforce   bool
		available int64
		absent    bool
		want      bool
	}{
		{id: "D1", none: true, available: 500 * mi},
		{id: "D2", available: 500 * mi, want: true},
		{id: "D3", available: 2 * gi},
		{id: "D4", enforce: true, available: gi + gi/20, want: true},
		{id: "D5", enforce: true, available: 2 * gi},
		{id: "D6", available: gi},
		{id: "D7", enforce: true, available: gi + 500*mi},
		{id: "D8", absent: true},
	} {
		t.Run(v.id, func(t *testing.T) {
			w := watch{ts: []Threshold{threshold}}
			if v.none {
				w.ts = nil
			}
			if v.enforce {
				w.at(0, one(MemoryAvailable, read(0, 4*gi)))
			}
			obs := one(MemoryAvailable, read(v.available, 4*gi))
			if v.absent {
				obs = &Observations{}
			}
			p := w.at(minute, obs)
			if met := len(p.Met) > 0; met != v.want {
				t.Errorf("met = %v, want %v", met, v.want)
			}
			if target := gi + 500*mi; v.want {
				deficit := gi - v.available
				if deficit <= 0 {
					deficit = target - v.available
				}
				if m := p.Met[0]; m.Target != target || m.Deficit != deficit || m.Lack != target-v.available || m.Available != v.available {
					t.Errorf("met as %+v", m)
				}
			}
			if o := obs[MemoryAvailable]; v.enforce && Relieved(threshold, o) == v.want {
				t.Errorf("relieved = %v, want %v", !v.want, v.want)
			}
		})
	}
}

// step is one evaluation with its expected result.
type step struct {
	at         time.Duration
	available  int64
	since      time.Duration // −1 = not met
	due        bool
	conditions string
}

// TestVectorsF: first-observed times, grace periods and conditions, with t = 10m. SoftForgive is 0,
// because the kubelet forgives at the first good sample.
func TestVectorsF(t *testing.T) {
	const now, bad, good = 10 * minute, gi / 2, 2 * gi
	soft := Threshold{Signal: MemoryAvailable, Kind: Soft, Value: Bytes(gi), Grace: minute}
	hard := Threshold{Signal: MemoryAvailable, Value: Bytes(gi)}
	for _, v := range []struct {
		id         string
		threshold  Threshold
		transition time.Duration
		steps      []step
	}{
		{"F1", soft, 0, []step{{now, bad, now, false, "MemoryPressure"}}},
		{"F2", soft, 0, []step{{now - minute, bad, now - minute, false, "MemoryPressure"}, {now, bad, now - minute, true, "MemoryPressure"}}},
		{"F3", soft, 0, []step{{now - minute, bad, now - minute, false, "MemoryPressure"}, {now, good, -1, false, ""}, {now + 1, bad, now + 1, false, "MemoryPressure"}}},
		{"F4", hard, 0, []step{{now, bad, now, true, "MemoryPressure"}}},
		{"F5", soft, 0, []step{{now, bad, now, false, "MemoryPressure"}}},
		{"F6", soft, 0, []step{{now - 2*minute, bad, now - 2*minute, false, "MemoryPressure"}, {now, bad, now - 2*minute, true, "MemoryPressure"}}},
		{"F7", soft, 0, []step{
			{now - minute, bad, now - minute, false, "MemoryPressure"},
			{now - 1, bad, now - minute, false, "MemoryPressure"},
			{now, bad, now - minute, true, "MemoryPressure"},
		}},
		{"F8", hard, 0, []step{{now, bad, now, true, "MemoryPressure"}}},
		{"F9", hard, minute, []step{{now, bad, now, true, "MemoryPressure"}, {now + minute - 1, good, -1, false, "MemoryPressure"}, {now + minute, good, -1, false, ""}}},
		{"F10", hard, minute, []step{
			{now - minute, bad, now - minute, true, "MemoryPressure"}, {now, bad, now - minute, true, "MemoryPressure"},
			{now + minute - 1, good, -1, false, "MemoryPressure"}, {now + minute, good, -1, false, ""},
		}},
		{"F11", hard, 2 * minute, []step{
			{now - minute, bad, now - minute, true, "MemoryPressure"}, {now, good, -1, false, "MemoryPressure"},
			{now + minute - 1, good, -1, false, "MemoryPressure"}, {now + minute, good, -1, false, ""},
		}},
		{"F12", hard, 2 * minute, []step{{now - minute, bad, now - minute, true, "MemoryPressure"}, {now, good, -1, false, "MemoryPressure"}}},
		{"F13", hard, minute / 2, []step{{now - minute, bad, now - minute, true, "MemoryPressure"}, {now, good, -1, false, ""}}},
		{"F14", hard, 5 * minute, []step{{now - 5*minute, bad, now - 5*minute, true, "MemoryPressure"}, {now, good, -1, false, ""}}},
	} {
		t.Run(v.id, func(t *testing.T) {
			w := watch{ts: []Threshold{v.threshold}, settings: Settings{TransitionPeriod: v.transition}}
			for _, s := range v.steps {
				p := w.at(s.at, one(MemoryAvailable, read(s.available, 4*gi)))
				if got := p.Conditions.String(); got != s.conditions {
					t.Errorf("at %s: conditions %q, want %q", s.at, got, s.conditions)
				}
				switch {
				case s.since < 0 && len(p.Met) != 0:
					t.Errorf("at %s: met since %s, want not met", s.at, p.Met[0].Since)
				case s.since >= 0 && (len(p.Met) != 1 || p.Met[0].Since != s.since || p.Met[0].Due != s.due || (p.Met[0].Wait == 0) != s.due):
					t.Errorf("at %s: met %+v, want since %s, due %v", s.at, p.Met, s.since, s.due)
				}
			}
		})
	}
}

// TestHardIsAtOnce: a grace period on a hard threshold has no effect.
func TestHardIsAtOnce(t *testing.T) {
	w := watch{ts: []Threshold{{Signal: MemoryAvailable, Value: Bytes(10), Grace: minute}}}
	if p := w.at(0, one(MemoryAvailable, read(5, 100))); len(p.Met) != 1 || !p.Met[0].Due || p.Met[0].Wait != 0 {
		t.Errorf("met %+v", p.Met)
	}
}

func TestConditionsBySignal(t *testing.T) {
	want := map[Condition][]string{
		MemoryPressure: {"memory.available", "allocatableMemory.available", "meminfo.available", "swap.available", "memory.stall"},
		PIDPressure:    {"pid.available"},
		DiskPressure: {"nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
			"containerfs.available", "containerfs.inodesFree", "io.stall"},
	}
	got := map[Condition][]string{}
	for _, s := range Signals() {
		w := watch{ts: []Threshold{{Signal: s, Value: Bytes(10)}}, settings: Settings{StallFloor: Percent(20)}}
		obs := one(MeminfoAvailable, read(1, 100))
		obs[s] = read(1, 100)
		list := w.at(0, obs).Conditions.List()
		if len(list) != 1 {
			t.Fatalf("%s raises %v", s, list)
		}
		got[list[0]] = append(got[list[0]], s.String())
	}
	for c, names := range want {
		if !slices.Equal(got[c], names) {
			t.Errorf("%s is raised by %v, want %v", c, got[c], names)
		}
	}
}

func TestFailedReading(t *testing.T) {
	soft := Threshold{Signal: NodeFSAvailable, Kind: Soft, Value: Bytes(10), Grace: minute}
	failed := one(NodeFSAvailable, Observation{Status: Failed})
	bad, good := one(NodeFSAvailable, read(5, 100)), one(NodeFSAvailable, read(50, 100))
	w := watch{ts: []Threshold{soft}, settings: Settings{TransitionPeriod: 5 * minute, SoftForgive: 5 * time.Second}}

	w.at(0, bad)
	for at := 10 * time.Second; at < 3*minute; at += 10 * time.Second {
		if p := w.at(at, failed); len(p.Met) != 0 || p.Conditions != ConditionsOf(DiskPressure) {
			t.Fatalf("at %s a failed reading gives %+v", at, p)
		}
	}
	if p := w.at(3*minute, bad); len(p.Met) != 1 || p.Met[0].Since != 0 || !p.Met[0].Due {
		t.Errorf("the grace period was forgotten: %+v", p)
	}
	w.at(3*minute+1, failed)
	w.ts[0].MinReclaim = Bytes(20)
	if p := w.at(3*minute+2, one(NodeFSAvailable, read(29, 100))); len(p.Met) != 1 {
		t.Errorf("minimum reclaim was forgotten: %+v", p)
	}
	w.at(4*minute, good)
	w.at(4*minute+time.Second, failed)
	if p := w.at(4*minute+5*time.Second, bad); len(p.Met) != 1 || p.Met[0].Since != 4*minute+5*time.Second {
		t.Errorf("the clear time was forgotten: %+v", p)
	}
	if p := w.at(10*minute, failed); p.Conditions != 0 {
		t.Errorf("a condition outlives what was last seen of it: %s", p.Conditions)
	}
}

// TestUnseenTime: only observed time counts towards a grace period, plus the pauses between two
// readings up to UnseenAtMost.
func TestUnseenTime(t *testing.T) {
	const s, unseen = time.Second, 10 * time.Second
	bad, good, failed := read(5, 100), read(50, 100), Observation{Status: Failed}
	type look struct {
		at time.Duration
		o  Observation
	}
	for name, v := range map[string]struct {
		grace time.Duration
		looks []look
		since time.Duration // at the last reading
		due   bool
	}{
		"looks as far apart as may be": {30 * s, []look{{0, bad}, {10 * s, bad}, {20 * s, bad}, {30 * s, bad}}, 0, true},
		"a suspend":                    {30 * s, []look{{0, bad}, {s, bad}, {8 * time.Hour, bad}}, 8*time.Hour - 11*s, false},
		"what was seen before it counts": {
			30 * s, []look{{0, bad}, {9 * s, bad}, {18 * s, bad}, {8 * time.Hour, bad}, {8*time.Hour + 2*s, bad}}, 8*time.Hour - 28*s, true,
		},
		"and after it": {30 * s, []look{{0, bad}, {8 * time.Hour, bad}, {8*time.Hour + 10*s, bad}, {8*time.Hour + 19*s, bad}}, 8*time.Hour - 10*s, false},
		"two of them":  {30 * s, []look{{0, bad}, {minute, bad}, {2 * minute, bad}}, 100 * s, false},
		"one that was over before": {
			10 * s, []look{{0, bad}, {10 * s, bad}, {8 * time.Hour, bad}}, 8*time.Hour - 20*s, true,
		},
		"readings that failed":            {30 * s, []look{{0, bad}, {10 * s, failed}, {20 * s, failed}, {30 * s, bad}}, 20 * s, false},
		"one that failed":                 {10 * s, []look{{0, bad}, {5 * s, failed}, {10 * s, bad}}, 0, true},
		"clear for less than forgives":    {10 * s, []look{{0, bad}, {6 * s, good}, {10 * s, bad}}, 0, true},
		"clear before a suspend":          {30 * s, []look{{0, bad}, {s, good}, {8 * time.Hour, bad}}, 8 * time.Hour, false},
		"a hard threshold waits for none": {0, []look{{0, bad}, {8 * time.Hour, bad}}, 8*time.Hour - 10*s, true},
	} {
		t.Run(name, func(t *testing.T) {
			soft := Threshold{Signal: MemoryAvailable, Kind: Soft, Value: Bytes(10), Grace: v.grace}
			if v.grace == 0 {
				soft.Kind = Hard
			}
			w := watch{ts: []Threshold{soft}, settings: Settings{SoftForgive: 5 * s, UnseenAtMost: unseen}}
			for _, l := range v.looks {
				w.at(l.at, one(MemoryAvailable, l.o))
			}
			if m := w.pressure.Met; len(m) != 1 || m[0].Since != v.since || m[0].Due != v.due {
				t.Errorf("%+v, want since %s, due %v", m, v.since, v.due)
			}
		})
	}
}

// TestImplausibleReading: an impossible value stops nothing.
func TestImplausibleReading(t *testing.T) {
	for _, o := range []Observation{read(0, 0), read(-1, 100), read(5, -1), {Available: 5, Capacity: 100, Status: 7}} {
		w := watch{ts: []Threshold{{Signal: SwapAvailable, Value: Bytes(10)}}}
		if p := w.at(0, one(SwapAvailable, o)); len(p.Met) != 0 || p.Conditions != 0 || Relieved(w.ts[0], o) {
			t.Errorf("%+v gives %+v", o, p)
		}
	}
	w := watch{ts: []Threshold{{Signal: SignalCount, Value: Bytes(10)}, {Kind: kindCount, Value: Bytes(10)}}}
	if p := w.at(0, one(MemoryAvailable, read(1, 100))); len(p.Met) != 0 {
		t.Errorf("a threshold of no signal gives %+v", p)
	}
}

// TestAbsentSignal: a signal that the node does not have counts as clear.
func TestAbsentSignal(t *testing.T) {
	w := watch{
		ts:       []Threshold{{Signal: SwapAvailable, Kind: Soft, Value: Bytes(10), Grace: minute}},
		settings: Settings{SoftForgive: 5 * time.Second},
	}
	w.at(0, one(SwapAvailable, read(5, 100)))
	w.at(10*time.Second, &Observations{})
	if p := w.at(14*time.Second, one(SwapAvailable, read(5, 100))); p.Met[0].Since != 0 {
		t.Errorf("forgotten too early: %+v", p)
	}
	w.at(20*time.Second, &Observations{})
	if p := w.at(25*time.Second, one(SwapAvailable, read(5, 100))); p.Met[0].Since != 25*time.Second {
		t.Errorf("not forgotten: %+v", p)
	}
}

// TestReload: a running grace period survives a change of the value. A threshold that was removed and
// added again starts over.
func TestReload(t *testing.T) {
	soft := Threshold{Signal: MemoryAvailable, Kind: Soft, Value: Bytes(50), Grace: minute}
	bad := one(MemoryAvailable, read(5, 100))
	w := watch{ts: []Threshold{soft}}
	w.at(0, bad)
	w.ts[0].Value = Bytes(60)
	if p := w.at(minute, bad); !p.Met[0].Due {
		t.Errorf("the grace period restarted: %+v", p)
	}
	w.ts = nil
	w.at(2*minute, bad)
	w.ts = []Threshold{soft}
	if p := w.at(3*minute, bad); p.Met[0].Due || p.Met[0].Since != 3*minute {
		t.Errorf("a threshold that was gone is due: %+v", p)
	}
}

// A threshold that is lowered while it is due has another target: what its old one lacked is no reason for a stop.
func TestReloadOfALowerThreshold(t *testing.T) {
	for _, c := range []struct {
		value Quantity
		met   bool
	}{{Bytes(20), false}, {Bytes(50), true}, {Bytes(60), true}, {Bytes(46), true}} {
		w := watch{ts: []Threshold{{Signal: MemoryAvailable, Value: Bytes(50), MinReclaim: Bytes(30)}}}
		w.at(0, one(MemoryAvailable, read(40, 100)))
		w.ts[0].Value = c.value
		if p := w.at(time.Second, one(MemoryAvailable, read(45, 100))); (len(p.Met) == 1) != c.met {
			t.Errorf("%v: %+v", c.value, p.Met)
		}
	}
}

func TestStall(t *testing.T) {
	for _, v := range []struct {
		name    string
		meminfo Observation
		floor   Quantity
		want    bool // WarnOnly
	}{
		{"memory below the floor", read(19, 100), Percent(20), false},
		{"memory at the floor", read(20, 100), Percent(20), true},
		{"memory half empty", read(50, 100), Percent(20), true},
		{"memory not read", Observation{Status: Failed}, Percent(20), true},
		{"memory absent", Observation{}, Percent(20), true},
		{"no floor", read(0, 100), Quantity{}, true},
		{"an absolute floor", read(19, 100), Bytes(20), false},
	} {
		t.Run(v.name, func(t *testing.T) {
			for _, s := range []Signal{MemoryStall, IOStall, MemoryAvailable} {
				w := watch{ts: []Threshold{{Signal: s, Value: Percent(80)}}, settings: Settings{StallFloor: v.floor}}
				obs := one(s, ObserveStall(time.Second, 2*time.Second, 0))
				obs[MeminfoAvailable] = v.meminfo
				p := w.at(0, obs)
				if want := v.want && s.IsStall(); len(p.Met) != 1 || p.Met[0].Due == want || p.Met[0].WarnOnly != want {
					t.Errorf("%s: %+v, want WarnOnly %v", s, p.Met, want)
				} else if m := p.Met[0]; s.IsStall() && (want && m.Deficit != 0 || !want && (m.Lack != 1 || m.Deficit != 1)) {
					t.Errorf("%s: %+v", s, m)
				} else if (p.Conditions == 0) != want {
					t.Errorf("%s raises %q, and only warns: %v", s, p.Conditions, want)
				}
			}
		})
	}
}

// TestEvaluateProperties checks invariants over random histories of one soft threshold. Nothing is due
// unless it was just seen below its target, for its grace period, with no clear stretch of SoftForgive.
// A signal seen bad without a break for the grace period is due.
func TestEvaluateProperties(t *testing.T) {
	const grace, forgive = 30 * time.Second, 5 * time.Second
	r := source(2)
	for range 10_000 {
		w := watch{
			ts:       []Threshold{{Signal: MemoryAvailable, Kind: Soft, Value: Bytes(10), Grace: grace, MinReclaim: Bytes(int64(r.IntN(3)))}},
			settings: Settings{SoftForgive: forgive},
		}
		var now, badSince, clearSince time.Duration = 0, -1, -1
		forgivenAt := time.Duration(-1) // latest time at which the grace period was certainly forgiven
		latched := false
		for range 40 {
			now += time.Duration(r.IntN(8)) * time.Second
			o := pick(r, read(9, 100), read(9, 100), read(9, 100), read(11, 100), read(50, 100), Observation{Status: Failed})
			p := w.at(now, one(MemoryAvailable, o))
			if o.Status == Failed {
				if len(p.Met) != 0 {
					t.Fatal("met without a reading")
				}
				continue
			}
			target := w.ts[0].Target(100)
			isMet := o.Available < 10 || latched && o.Available < target
			if (len(p.Met) == 1) != isMet {
				t.Fatalf("met %v at available %d, latched %v", p.Met, o.Available, latched)
			}
			if !isMet {
				latched, badSince = false, -1
				if clearSince < 0 {
					clearSince = now
				}
				if now-clearSince >= forgive {
					forgivenAt = now
				}
				continue
			}
			if clearSince >= 0 && now-clearSince >= forgive {
				forgivenAt = now
			}
			clearSince = -1
			if badSince < 0 {
				badSince = now
			}
			m := p.Met[0]
			switch {
			case m.Deficit < 1 || m.Lack != target-m.Available || m.Available < 10 && m.Deficit != 10-m.Available || m.Available >= 10 && m.Deficit != m.Lack:
				t.Fatalf("deficit of %+v", m)
			case m.Due && now-m.Since < grace:
				t.Fatalf("due too early: %+v at %s", m, now)
			case m.Due != (m.Wait == 0):
				t.Fatalf("due %v with %s to wait", m.Due, m.Wait)
			case m.Since < forgivenAt:
				t.Fatalf("since %s, but forgiven at %s", m.Since, forgivenAt)
			case now-badSince >= grace && !m.Due:
				t.Fatalf("bad since %s and not due at %s", badSince, now)
			}
			latched = m.Due
		}
	}
}

// TestEvaluateDeterminism: the order of the thresholds does not matter.
func TestEvaluateDeterminism(t *testing.T) {
	r := source(3)
	for range 10_000 {
		var a, b watch
		var obs [3]Observations
		for _, s := range Signals() {
			for k := range kindCount {
				if r.IntN(2) == 0 {
					a.ts = append(a.ts, Threshold{s, k, Bytes(r.Int64N(100) + 1), time.Duration(r.IntN(3)), Bytes(r.Int64N(20))})
				}
			}
			for i := range obs {
				obs[i][s] = Observation{r.Int64N(110), 100, 0, Status(r.IntN(3)), 0, 0}
			}
		}
		b.ts = slices.Clone(a.ts)
		r.Shuffle(len(b.ts), func(i, j int) { b.ts[i], b.ts[j] = b.ts[j], b.ts[i] })
		for i := range obs {
			p, q := a.at(time.Duration(i), &obs[i]), b.at(time.Duration(i), &obs[i])
			if !slices.Equal(p.Met, q.Met) || p.Conditions != q.Conditions || a.state != b.state {
				t.Fatalf("%+v differs from %+v", p, q)
			}
			if !slices.IsSortedFunc(p.Met, func(a, b Met) int { return a.Compare(b.Threshold) }) {
				t.Fatalf("not in the order of acting: %v", a.met())
			}
		}
	}
}

func TestEvaluateIdleAllocatesNothing(t *testing.T) {
	ts, obs := idleNode(t)
	var s State
	if n := testing.AllocsPerRun(100, func() {
		s, _ = Evaluate(s, ts, Settings{TransitionPeriod: 5 * minute}, &obs, minute)
	}); n != 0 {
		t.Errorf("an idle evaluation allocates %v times", n)
	}
}

// idleNode returns the default thresholds, with the derived ones, and a node without any shortage.
func idleNode(t testing.TB) ([]Threshold, Observations) {
	t.Helper()
	ts := thresholds(t, DefaultHard(), nil, nil, nil)
	var obs Observations
	for s := range obs {
		obs[s] = read(3*gi, 4*gi)
	}
	return Derive(ts, SingleFS, true), obs
}

// A condition whose thresholds are clear lasts for the rest of its transition period.
func TestClearsIn(t *testing.T) {
	ts := []Threshold{{Signal: MemoryAvailable, Value: Bytes(gi)}}
	set := Settings{TransitionPeriod: minute}
	var s State
	at := func(available int64, now time.Duration) time.Duration {
		var p Pressure
		s, p = Evaluate(s, ts, set, one(MemoryAvailable, read(available, 4*gi)), now)
		return s.ClearsIn(MemoryPressure, &p, set, now+time.Second)
	}
	for _, c := range []struct {
		available int64
		at, want  time.Duration
	}{
		{2 * gi, 0, 0}, {gi / 2, 10 * time.Second, 0}, {2 * gi, 20 * time.Second, 49 * time.Second},
		{gi / 2, 30 * time.Second, 0}, {2 * gi, 40 * time.Second, 49 * time.Second}, {2 * gi, 90 * time.Second, 0},
	} {
		if got := at(c.available, c.at); got != c.want {
			t.Errorf("at %s with %d: %s, want %s", c.at, c.available, got, c.want)
		}
	}
}
