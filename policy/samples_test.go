package policy

import (
	"math"
	"testing"
	"time"
)

// reading is a sample of one signal, of the pods cgroup and of pods.
type reading struct {
	at        time.Duration
	available int64
	cgroup    Amount
	pods      []Candidate
}

// samplesOf returns the samples of a signal.
func samplesOf(s Signal, readings ...reading) *Samples {
	samples := &Samples{}
	for _, r := range readings {
		o := read(r.available, math.MaxInt64)
		if r.available < 0 {
			o = Observation{Status: Failed}
		}
		samples.Add(r.at, one(s, o), r.pods, r.cgroup)
	}
	return samples
}

// Fill is how fast a signal fell between its newest reading and the newest reading that is at least 1 s and
// at most 10 s older (disks: 30 s). It is never negative; without such a reading it is 0.
func TestFill(t *testing.T) {
	for _, v := range []struct {
		name      string
		signal    Signal
		readings  []reading
		now       time.Duration
		available int64
		want      int64
	}{
		{"no reading", MemoryAvailable, nil, 0, 50, 0},
		{"1 s", MemoryAvailable, []reading{{at: 0, available: 100}}, second, 50, 50},
		{"just less", MemoryAvailable, []reading{{at: 0, available: 100}}, second - 1, 50, 0},
		{"10 s", MemoryAvailable, []reading{{at: 0, available: 100}}, 10 * second, 50, 5},
		{"just more", MemoryAvailable, []reading{{at: 0, available: 100}}, 10*second + 1, 50, 0},
		{"swap, 10 s", SwapAvailable, []reading{{at: 0, available: 100}}, 10 * second, 50, 5},
		{"PIDs, more than 10 s", PIDAvailable, []reading{{at: 0, available: 100}}, 11 * second, 50, 0},
		{"disk, 30 s", NodeFSAvailable, []reading{{at: 0, available: 100}}, 30 * second, 40, 2},
		{"disk, more", NodeFSInodesFree, []reading{{at: 0, available: 100}}, 30*second + 1, 40, 0},
		{"disk, less than 1 s", NodeFSInodesFree, []reading{{at: 0, available: 100}}, second - 1, 40, 0},
		{"rose", MemoryAvailable, []reading{{at: 0, available: 100}}, second, 101, 0},
		{"the newest that is old enough", MemoryAvailable, []reading{
			{at: 0, available: 1000}, {at: 2 * second, available: 100}, {at: 3*second + 1, available: 60},
		}, 4 * second, 50, 25},
		{"not read then", MemoryAvailable, []reading{{at: 0, available: -1}}, second, 50, 0},
		{"more than a number holds", MemoryAvailable, []reading{{at: 0, available: math.MaxInt64}}, second, 0, math.MaxInt64},
		{"a stall", MemoryStall, []reading{{at: 0, available: 100}}, second, 50, 0},
		{"clock went back", MemoryAvailable, []reading{{at: minute, available: 100}}, second, 50, 0},
	} {
		s := samplesOf(v.signal, v.readings...)
		if got := s.Fill(v.signal, one(v.signal, read(v.available, math.MaxInt64)), v.now); got != v.want {
			t.Errorf("%s: %d, want %d", v.name, got, v.want)
		}
		if got := s.Fill(v.signal, one(v.signal, Observation{Status: Failed}), v.now); got != 0 {
			t.Errorf("%s, not read now: %d", v.name, got)
		}
	}
}

// A reading of a disk may be older than the sample that has it.
func TestFillOfAnOldReading(t *testing.T) {
	at := func(at time.Duration, available int64) Observation {
		return Observation{Available: available, Capacity: 1000, At: at, Status: OK}
	}
	var s Samples
	s.Add(9*second, one(NodeFSAvailable, at(5*second, 500)), nil, Amount{})
	if got := s.Fill(NodeFSAvailable, one(NodeFSAvailable, at(10*second, 400)), 10*second); got != 20 {
		t.Errorf("falls by %d, want 20", got)
	}
}

// Outside fill is the signal's fall (negative if it rose) minus the growth of the unprotected pods: the pods
// cgroup's growth less that of protected pods, or the sum of the unprotected pods. It is negative if that comes back,
// and 0 where the pods' growth is not known, and for disks.
func TestOutsideFill(t *testing.T) {
	pod := func(id string, used Amount, protection string) Candidate {
		disk := DiskUsage{Rootfs: Exactly(used.Value), Logs: Exactly(0), Volumes: Exactly(0)}
		return Candidate{ID: id, Memory: used, PIDs: used, Disk: disk, Inodes: disk, Created: -1, Protection: protection}
	}
	apart := func(c Candidate) Candidate { c.Apart = true; return c }
	const none, static = "", "static pod"
	pods := func(cs ...Candidate) []Candidate { return cs }
	unknown := Amount{}
	for _, v := range []struct {
		name                      string
		fall                      int64 // within 2 s
		before, after             []Candidate
		cgroupBefore, cgroupAfter Amount
		want                      int64 // per second
		wantOthers                int64 // for swap and PIDs, which have no cgroup
	}{
		{"sum", 100, pods(pod("a", Known(10), none), pod("b", Known(10), none)), pods(pod("a", Known(50), none), pod("b", Known(30), none)), unknown, unknown, 20, 20},
		{"sum, a pod is new", 100, pods(pod("a", Known(10), none)), pods(pod("a", Known(10), none), pod("b", Known(60), none)), unknown, unknown, 20, 20},
		{"sum, a pod has gone", 100, pods(pod("a", Known(10), none), pod("b", Known(60), none)), pods(pod("a", Known(10), none)), unknown, unknown, 80, 80},
		{"sum without protected pods", 100, pods(pod("a", Known(10), none), pod("b", Known(10), static)), pods(pod("a", Known(50), none), pod("b", Known(90), static)), unknown, unknown, 30, 30},
		{"cgroup", 100, pods(pod("a", Known(10), none)), pods(pod("a", Known(10), none)), Known(1000), Known(1060), 20, 50},
		{"cgroup without protected pods", 100, pods(pod("a", Known(10), none), pod("b", Known(10), static)), pods(pod("a", Known(10), none), pod("b", Known(50), static)), Known(1000), Known(1060), 40, 50},
		{"cgroup, an unprotected pod is unknown", 100, pods(pod("a", unknown, none)), pods(pod("a", unknown, none)), Known(1000), Known(1060), 20, 0},
		{"cgroup, a protected pod is unknown", 100, pods(pod("b", Known(1), static)), pods(pod("b", unknown, static)), Known(1000), Known(1060), 0, 50},
		{"cgroup, a pod outside of it", 100, pods(apart(pod("a", Known(10), none))), pods(apart(pod("a", Known(50), none))), Known(1000), Known(1060), 0, 30},
		{"cgroup, a protected pod outside of it", 100, pods(apart(pod("b", Known(10), static))), pods(apart(pod("b", Known(50), static))), Known(1000), Known(1060), 20, 50},
		{"cgroup only then", 100, pods(pod("a", Known(10), none)), pods(pod("a", Known(10), none)), Known(1000), unknown, 0, 50},
		{"cgroup only now", 100, pods(pod("a", Known(10), none)), pods(pod("a", Known(10), none)), unknown, Known(1000), 0, 50},
		{"a pod is unknown now", 100, pods(pod("a", Known(10), none)), pods(pod("a", unknown, none)), unknown, unknown, 0, 0},
		{"a pod was unknown", 100, pods(pod("a", unknown, none)), pods(pod("a", Known(10), none)), unknown, unknown, 0, 0},
		{"pods grew by more", 100, pods(pod("a", Known(10), none)), pods(pod("a", Known(111), none)), unknown, unknown, 0, 0},
		{"pods shrank", 100, pods(pod("a", Known(110), none)), pods(pod("a", Known(10), none)), unknown, unknown, 100, 100},
		{"rose, but less than the pods shrank", -50, pods(pod("a", Known(110), none)), pods(pod("a", Known(10), none)), unknown, unknown, 25, 25},
		{"rose by more than the pods shrank", -150, pods(pod("a", Known(110), none)), pods(pod("a", Known(10), none)), unknown, unknown, -25, -25},
		{"no pods", 100, nil, nil, unknown, unknown, 50, 50},
	} {
		for signal, want := range map[Signal]int64{
			MemoryAvailable: v.want, MeminfoAvailable: v.want, SwapAvailable: v.wantOthers, PIDAvailable: v.wantOthers,
			NodeFSAvailable: 0, NodeFSInodesFree: 0, MemoryStall: 0,
		} {
			s := samplesOf(signal, reading{0, 1000, v.cgroupBefore, v.before})
			if _, got := s.fall(signal, read(1000-v.fall, math.MaxInt64), v.after, v.cgroupAfter, 2*second); got != want {
				t.Errorf("%s, %s: %d, want %d", v.name, signal, got, want)
			}
		}
	}
}

// Growth is a candidate's usage now less its usage at the newest sample that is at least 1 s and at most 10 s
// older, per second. A sandbox younger than that sample has grown by all that it uses, over its age (at least
// 1 s). Without a sample it is unknown.
func TestGrowth(t *testing.T) {
	was := func(n int64) []Candidate {
		return []Candidate{{ID: "pod", Memory: Known(n), Swap: Known(10 * n), PIDs: Known(100 * n)}}
	}
	unknown := []Candidate{{ID: "pod"}}
	for _, v := range []struct {
		name     string
		readings []reading
		created  time.Duration
		now      time.Duration
		used     Amount
		want     Amount // of memory; swap is ten times it, tasks a hundred times
	}{
		{"no sample", nil, -1, second, Known(50), Amount{}},
		{"1 s", []reading{{at: 0, pods: was(10)}}, -1, second, Known(50), Known(40)},
		{"just less", []reading{{at: 0, pods: was(10)}}, -1, second - 1, Known(50), Amount{}},
		{"10 s", []reading{{at: 0, pods: was(10)}}, -1, 10 * second, Known(50), Known(4)},
		{"just more", []reading{{at: 0, pods: was(10)}}, -1, 10*second + 1, Known(50), Amount{}},
		{"the newest that is old enough", []reading{{at: 0, pods: was(0)}, {at: 2 * second, pods: was(30)}, {at: 3*second + 1, pods: was(49)}}, -1, 4 * second, Known(50), Known(10)},
		{"shrank", []reading{{at: 0, pods: was(60)}}, -1, 2 * second, Known(50), Known(-5)},
		{"unknown now", []reading{{at: 0, pods: was(10)}}, -1, second, Amount{}, Amount{}},
		{"unknown then", []reading{{at: 0, pods: unknown}}, -1, second, Known(50), Amount{}},
		{"not listed then, 10 s old", []reading{{at: minute}}, minute - 9*second, minute + second, Known(50), Known(5)},
		{"not listed then, older", []reading{{at: minute}}, minute - 9*second - 1, minute + second, Known(50), Amount{}},
		{"created with the sample", []reading{{at: minute}}, minute, minute + second, Known(50), Known(50)},
		{"younger than the sample", []reading{{at: minute}}, minute + second, minute + 3*second, Known(50), Known(25)},
		{"younger than a second", []reading{{at: minute}}, minute + 3*second - 1, minute + 3*second, Known(50), Known(50)},
		{"younger, unknown now", []reading{{at: minute}}, minute + second, minute + 3*second, Amount{}, Amount{}},
	} {
		s := samplesOf(MemoryAvailable, v.readings...)
		for pool, times := range map[Pool]int64{PoolMemory: 1, PoolPIDs: 100, PoolNodeBytes: 0, PoolImageInodes: 0} {
			scaled := func(a Amount, by int64) Amount { return Amount{a.Value * by, a.Known} }
			c := Candidate{ID: "pod", Created: v.created, Memory: v.used, PIDs: scaled(v.used, 100)}
			want := scaled(v.want, times)
			if want.Known = want.Known && times > 0; !want.Known {
				want = Amount{}
			}
			if got := s.Growth(&c, pool, v.now); got != want {
				t.Errorf("%s, %s: %+v, want %+v", v.name, pool, got, want)
			}
		}
	}
}

// Memory that is moved to swap is neither growth nor the opposite.
func TestGrowthInSwap(t *testing.T) {
	for _, v := range []struct {
		name               string
		memory, swap       Amount
		nowMemory, nowSwap Amount
		createdAfter       bool
		want               Amount
	}{
		{"pushed out", Known(100), Known(0), Known(30), Known(70), false, Known(0)},
		{"comes back", Known(30), Known(70), Known(90), Known(10), false, Known(0)},
		{"leaks into swap", Known(100), Known(0), Known(100), Known(70), false, Known(70)},
		{"gives back", Known(100), Known(50), Known(80), Known(20), false, Known(-50)},
		{"not accounted", Known(100), Amount{}, Known(130), Amount{}, false, Known(30)},
		{"accounted since", Known(100), Amount{}, Known(130), Known(70), false, Known(30)},
		{"new", Amount{}, Amount{}, Known(30), Known(70), true, Known(100)},
		{"new, not accounted", Amount{}, Amount{}, Known(30), Amount{}, true, Known(30)},
		{"memory unknown", Known(100), Known(0), Amount{}, Known(70), false, Amount{}},
	} {
		s := samplesOf(MemoryAvailable, reading{at: minute, pods: []Candidate{{ID: "pod", Memory: v.memory, Swap: v.swap}}})
		c := Candidate{ID: "pod", Created: -1, Memory: v.nowMemory, Swap: v.nowSwap}
		if v.createdAfter {
			c.Created = minute + 1
		}
		if got := s.Growth(&c, PoolMemory, minute+second); got != v.want {
			t.Errorf("%s: %+v, want %+v", v.name, got, v.want)
		}
	}
}

// Samples keep those of the last second and the one before, and the readings of a dropped sample do not show
// up in a later one.
func TestSamplesKept(t *testing.T) {
	var s Samples
	if age, ok := s.Age(second); ok || age != 0 {
		t.Errorf("the age of no sample is %s", age)
	}
	for i := range 1000 {
		now := time.Duration(i) * second / 10
		id := []string{"even", "odd"}[i/10%2]
		s.Add(now, one(MemoryAvailable, read(int64(1000-i), 1000)), []Candidate{{ID: id, Memory: Known(int64(i))}}, Amount{})
		if len(s.kept) > 11 {
			t.Fatalf("%d samples are kept", len(s.kept))
		}
		for j := range s.kept {
			if len(s.kept[j].pods) != 1 {
				t.Fatalf("sample of %s holds %v", s.kept[j].at, s.kept[j].pods)
			}
		}
		if i < 10 {
			continue
		}
		if got := s.Fill(MemoryAvailable, one(MemoryAvailable, read(int64(1000-i), 1000)), now); got != 10 {
			t.Fatalf("at %s the signal falls by %d", now, got)
		}
	}
	if age, ok := s.Age(2 * minute); !ok || age != 2*minute-99*second-900*time.Millisecond {
		t.Errorf("the last sample is %s old", age)
	}
}

// What was taken outside the pods within ten seconds is by how much the signal fell, at most, without the growth of the
// pods, even if it has come back since.
func TestTaken(t *testing.T) {
	pod := func(used int64) []Candidate { return []Candidate{{ID: "a", Created: -1, Memory: Known(used)}} }
	at := func(at time.Duration, available, used int64) reading {
		return reading{at, available, Amount{}, pod(used)}
	}
	for _, v := range []struct {
		name     string
		readings []reading
		now      time.Duration
		want     int64 // with 100 available, and a pod of 50
	}{
		{"no sample", nil, 0, 0},
		{"now", []reading{at(0, 130, 50)}, second, 30},
		{"and given back", []reading{at(0, 400, 50), at(second, 70, 50)}, 2 * second, 330},
		{"given back before", []reading{at(0, 100, 50), at(2*second, 400, 50)}, 4 * second, 300},
		{"within one second", []reading{at(0, 100, 50), at(second, 400, 50), at(second+1, 90, 50)}, 2 * second, 310},
		{"nine seconds ago", []reading{at(0, 400, 50), at(1, 100, 50)}, 10*second - 1, 300},
		{"ten seconds ago", []reading{at(0, 400, 50), at(1, 100, 50)}, 10 * second, 0},
		{"by the pod", []reading{at(0, 130, 20)}, second, 0},
		{"partly by the pod", []reading{at(0, 150, 20)}, second, 20},
		{"what the pod has given back", []reading{at(0, 100, 90)}, second, 0},
		{"what the pod has given back, which came into the signal first", []reading{at(0, 60, 90), at(1, 100, 90)}, second, 0},
		{"the same, later", []reading{at(0, 60, 90), at(1, 60, 50)}, second, 0},
		{"not read then", []reading{at(0, -1, 50)}, second, 0},
		{"the cgroup known only then", []reading{{0, 400, Known(50), pod(50)}}, second, 0},
	} {
		s := samplesOf(MemoryAvailable, v.readings...)
		if got := s.taken(MemoryAvailable, read(100, math.MaxInt64), pod(50), Amount{}, v.now); got != v.want {
			t.Errorf("%s: %d, want %d", v.name, got, v.want)
		}
	}
	s := samplesOf(NodeFSAvailable, at(0, 400, 50))
	if got := s.taken(NodeFSAvailable, read(100, math.MaxInt64), pod(50), Amount{}, second); got != 0 {
		t.Errorf("disk: %d", got)
	}
}

// Another limit of the pods cgroup, or the node's number of tasks in place of that of the pods cgroup, is no fall, and nothing was
// taken outside the pods. The node's own memory has one limit: less of it is a fall.
func TestAnotherCapacity(t *testing.T) {
	pod := []Candidate{{ID: "a", Created: -1, Memory: Known(50), PIDs: Known(50)}}
	for signal, want := range map[Signal]int64{PIDAvailable: 0, AllocatableMemoryAvailable: 0, MemoryAvailable: 300, SwapAvailable: 300} {
		var s Samples
		s.Add(0, one(signal, read(400, 1000)), pod, Amount{})
		if got := s.Fill(signal, one(signal, read(100, 500)), second); got != want {
			t.Errorf("%s falls by %d, want %d", signal, got, want)
		}
		if _, outside := s.fall(signal, read(100, 500), pod, Amount{}, second); outside != want {
			t.Errorf("%s falls by %d outside the pods, want %d", signal, outside, want)
		}
		if got := s.taken(signal, read(100, 500), pod, Amount{}, second); got != want {
			t.Errorf("%s: %d were taken, want %d", signal, got, want)
		}
		// From the other capacity on, it counts again, and what was taken before is not forgotten.
		s.Add(second, one(signal, read(100, 500)), pod, Amount{})
		s.Add(2*second, one(signal, read(80, 500)), pod, Amount{})
		if got := s.Fill(signal, one(signal, read(70, 500)), 3*second); got != 10 {
			t.Errorf("%s falls by %d with the other capacity, want 10", signal, got)
		}
		if got := s.taken(signal, read(70, 500), pod, Amount{}, 3*second); got != want+30 {
			t.Errorf("%s: %d were taken in all, want %d", signal, got, want+30)
		}
	}
}

// Tasks above a limit that was lowered are given back, too, although none becomes available: a pod that ends seems to be no growth
// outside the pods.
func TestRatesAboveTheLimit(t *testing.T) {
	pods := func(tasks ...int64) (cs []Candidate) {
		for i, n := range tasks {
			cs = append(cs, Candidate{ID: string(rune('a' + i)), PIDs: Known(n)})
		}
		return cs
	}
	var obs Observations
	var s Samples
	obs[PIDAvailable] = ObserveUsed(1000, 2050, 0)
	s.Add(0, &obs, pods(200, 200), Amount{})
	now := 2 * time.Second
	for used, want := range map[int64][2]int64{1850: {-100, 0}, 1950: {-50, 50}, 2150: {50, 150}} {
		o := ObserveUsed(1000, used, now)
		fall, outside := s.fall(PIDAvailable, o, pods(200), Amount{}, now)
		if got := [2]int64{fall, outside}; got != want {
			t.Errorf("%d tasks: %d, want %d", used, got, want)
		}
		if taken := s.taken(PIDAvailable, o, pods(200), Amount{}, now); taken != max(used-2050, 0) {
			t.Errorf("%d tasks: %d taken outside the pods", used, taken)
		}
	}
}

// After a sleep of the machine, growth, fill and what was taken are what they were before.
func TestSlept(t *testing.T) {
	pod := func(used int64) []Candidate {
		return []Candidate{{ID: "a", Memory: Known(used), Created: second}}
	}
	for _, slept := range []time.Duration{0, 1500 * time.Millisecond, 3 * time.Second, 3*time.Hour + 7*time.Millisecond} {
		s := samplesOf(MemoryAvailable, reading{10 * second, 1000, Amount{}, pod(100)}, reading{12 * second, 400, Amount{}, pod(300)})
		s.Slept(slept, slept+13*second)
		now := slept + 13*second
		cs := pod(350)
		fall, outside := s.fall(MemoryAvailable, read(350, math.MaxInt64), cs, Amount{}, now)
		grew, taken := s.Growth(&cs[0], PoolMemory, now), s.taken(MemoryAvailable, read(350, math.MaxInt64), cs, Amount{}, now)
		if fall != 50 || outside != 0 || grew != Known(50) || taken != 400 {
			t.Errorf("slept %v: falls by %d, %d outside, the pod grows by %+v, %d were taken", slept, fall, outside, grew, taken)
		}
		var disk Samples
		disk.Add(9*second, one(NodeFSAvailable, Observation{Available: 500, Capacity: 1000, At: 5 * second, Status: OK}), nil, Amount{})
		disk.Slept(slept, slept+13*second)
		if got := disk.Fill(NodeFSAvailable, one(NodeFSAvailable, Observation{Available: 400, At: slept + 10*second, Capacity: 1000, Status: OK}), slept+10*second); got != 20 {
			t.Errorf("slept %v: a disk falls by %d, want 20", slept, got)
		}
	}
}

// A sandbox that was created after the last sample before a sleep has grown by all that it uses, over the time in which the machine was
// awake. So has one that was created after the sleep.
func TestGrowthOfANewSandboxAfterASleep(t *testing.T) {
	for created, want := range map[time.Duration]int64{11 * second: 50, 9 * second: 30, time.Hour + 14*second: 150} {
		s := samplesOf(MemoryAvailable, reading{10 * second, 1000, Amount{}, nil})
		s.Slept(time.Hour, time.Hour+12*second)
		c := Candidate{ID: "new", Created: created, Memory: Known(150)}
		if got := s.Growth(&c, PoolMemory, time.Hour+14*second); got != Known(want) {
			t.Errorf("created at %s: grew by %+v, want %d", created, got, want)
		}
	}
}

// What was read when the machine had already woken is not moved into the future, where it would stay, and keep all that follow.
func TestSleptBeforeTheLastSample(t *testing.T) {
	s := samplesOf(MemoryAvailable, reading{9 * second, 1000, Amount{}, nil}, reading{time.Hour + 10*second, 900, Amount{}, nil})
	s.Gave(PoolMemory, 100, time.Hour+10*second)
	s.Slept(time.Hour, time.Hour+11*second)
	for i := range 100 {
		s.Add(time.Hour+time.Duration(11+i)*second, one(MemoryAvailable, read(900, math.MaxInt64)), nil, Amount{})
	}
	if len(s.kept) > 3 {
		t.Errorf("%d samples are kept", len(s.kept))
	}
	if got := s.gaveBack(PoolMemory, time.Hour+111*second); got != 0 {
		t.Errorf("stops gave back %d per second", got)
	}
	for _, r := range s.outside[MemoryAvailable].seconds {
		if r.at > int64(time.Hour/second)+111 {
			t.Errorf("a reading of the %d. second", r.at)
		}
	}
}

// Samples count for longer if what reads them was late, until the next one is old enough.
func TestLate(t *testing.T) {
	s := samplesOf(MemoryAvailable, reading{10 * second, 1000, Amount{}, nil})
	s.Late(5 * second)
	fill := func(now time.Duration) int64 {
		return s.Fill(MemoryAvailable, one(MemoryAvailable, read(400, math.MaxInt64)), now)
	}
	if at25, later := fill(25*second), fill(25*second+1); at25 != 40 || later != 0 {
		t.Errorf("falls by %d, and by %d when the sample is too old", at25, later)
	}
	young := &Candidate{ID: "new", Created: 10 * second, Memory: Known(300), Swap: Known(0)}
	if got := s.Growth(young, PoolMemory, 25*second); got != Known(20) {
		t.Errorf("one that was too young to be listed grows by %+v", got)
	}
	s.Add(25*second, one(MemoryAvailable, read(400, math.MaxInt64)), nil, Amount{})
	if soon, later := fill(25*second), fill(26*second); soon != 40 || later != 0 {
		t.Errorf("falls by %d, and by %d when another sample is old enough", soon, later)
	}
}

// A sandbox in which a kubelet has started a pod again has not grown by the memory that the stop of the one before has left.
func TestGrowthWithoutWhatAStopLeft(t *testing.T) {
	var s Samples
	s.Add(minute-second, &Observations{}, nil, Amount{})
	c := Candidate{ID: "again", Created: minute - second/2, Memory: Known(3*gi + 10*mi), ActiveFile: mi, Kept: 3 * gi}
	if got := s.Growth(&c, PoolMemory, minute); got != Known(9*mi) {
		t.Errorf("grew by %+v", got)
	}
}

// What a fruitless stop of its workload was expected to give back is no growth of a sandbox that comes back, until a sample has it.
func TestGrowthWithoutWhatWasTakenBefore(t *testing.T) {
	var s Samples
	s.Add(minute-second, &Observations{}, nil, Amount{})
	c := Candidate{ID: "again", Created: minute - second/2, Memory: Known(10 * mi), PIDs: Known(10), Had: 10}
	for pool, want := range map[Pool]int64{PoolMemory: 10*mi - 10, PoolPIDs: 0} {
		if got := s.Growth(&c, pool, minute); got != Known(want) {
			t.Errorf("%s: grew by %+v", pool, got)
		}
	}
	if c.Had = 11 * mi; s.Growth(&c, PoolMemory, minute) != Known(0) {
		t.Errorf("it uses less than before, and grew by %+v", s.Growth(&c, PoolMemory, minute))
	}
	s.Add(minute, &Observations{}, []Candidate{c}, Amount{})
	c.Memory = Known(12 * mi)
	if got := s.Growth(&c, PoolMemory, minute+second); got != Known(2*mi) {
		t.Errorf("with a sample, it grew by %+v", got)
	}
}
