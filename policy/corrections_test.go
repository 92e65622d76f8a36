package policy

import (
	"slices"
	"testing"
	"time"
)

// The eight places where we differ from the kubelet on purpose, one test each.

// TestCorrection1SignalsAreIndependent: a signal that cannot be read, or that is
// still met, takes no part in what another one comes to. In the kubelet a failed
// filesystem stat switches memory protection off as well.
func TestCorrection1SignalsAreIndependent(t *testing.T) {
	ts, err := ParseThresholds(
		map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "pid.available": "5%"},
		map[string]string{"imagefs.available": "20%"}, map[string]string{"imagefs.available": "1m"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	short := map[Signal]Observation{
		MemoryAvailable: read(50*mi, gi), NodeFSAvailable: read(1, 100), PIDAvailable: read(1, 100), ImageFSAvailable: read(1, 100),
	}
	alone := map[Signal]Pressure{} // each as if the others were not there
	for s, o := range short {
		alone[s] = (&watch{ts: ts}).at(0, one(s, o))
		if len(alone[s].Met) != 1 {
			t.Fatalf("%s alone: %+v", s, alone[s])
		}
	}
	others := []Observation{{}, {Status: Failed}, read(0, 100), read(100, 100), read(-1, 0)}
	r := source(4)
	for range 1000 {
		for s, o := range short {
			obs := one(s, o)
			for u := range short {
				if u != s {
					obs[u] = pick(r, others...)
				}
			}
			w := watch{ts: ts}
			p := w.at(0, obs)
			i := slices.IndexFunc(p.Met, func(m Met) bool { return m.Signal == s })
			if i < 0 || p.Met[i] != alone[s].Met[0] {
				t.Fatalf("%s beside %+v comes to %+v", s, obs, p.Met)
			}
		}
	}
}

// TestCorrection2OrderIsFixed: in the kubelet the order of hard and soft memory
// thresholds, and of disk and PIDs, comes out of a map.
func TestCorrection2OrderIsFixed(t *testing.T) {
	all := map[string]string{}
	grace := map[string]string{}
	var obs Observations
	for _, s := range Signals() {
		all[s.String()], grace[s.String()] = "50%", "1m"
		obs[s] = read(1, 100)
	}
	ts, err := ParseThresholds(all, all, grace, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"memory.available:hard", "allocatableMemory.available:hard", "meminfo.available:hard", "swap.available:hard", "memory.stall:hard",
		"memory.available:soft", "allocatableMemory.available:soft", "meminfo.available:soft", "swap.available:soft", "memory.stall:soft",
		"pid.available:hard", "pid.available:soft",
		"nodefs.available:hard", "nodefs.inodesFree:hard", "imagefs.available:hard", "imagefs.inodesFree:hard",
		"containerfs.available:hard", "containerfs.inodesFree:hard", "io.stall:hard",
		"nodefs.available:soft", "nodefs.inodesFree:soft", "imagefs.available:soft", "imagefs.inodesFree:soft",
		"containerfs.available:soft", "containerfs.inodesFree:soft", "io.stall:soft",
	}
	r := source(5)
	for range 100 {
		r.Shuffle(len(ts), func(i, j int) { ts[i], ts[j] = ts[j], ts[i] })
		w := watch{ts: ts}
		w.at(0, &obs)
		if got := w.met(); !slices.Equal(got, want) {
			t.Fatalf("met in the order %v, want %v", got, want)
		}
	}
}

// TestCorrection3OneGoodSampleDoesNotForgive: in the kubelet a single good sample
// starts the grace period anew, so that a flapping signal is never acted on.
func TestCorrection3OneGoodSampleDoesNotForgive(t *testing.T) {
	const s = time.Second
	soft := Threshold{Signal: MemoryAvailable, Kind: Soft, Value: Bytes(10), Grace: 2 * minute}
	bad, good := read(5, 100), read(50, 100)
	type sample struct {
		at time.Duration
		o  Observation
	}
	for _, v := range []struct {
		name          string
		samples       []sample
		kubelet, want time.Duration // met since, at the last sample
	}{
		{"clear for a second", []sample{{0, bad}, {60 * s, good}, {61 * s, bad}}, 61 * s, 0},
		{"clear until forgiven", []sample{{0, bad}, {60 * s, good}, {120 * s, bad}}, 120 * s, 120 * s},
		{"clear for soft_forgive exactly", []sample{{0, bad}, {60 * s, good}, {65 * s, bad}}, 65 * s, 65 * s},
		{"clear for just less", []sample{{0, bad}, {60 * s, good}, {65*s - 1, bad}}, 65*s - 1, 0},
		{"clear at two samples", []sample{{0, bad}, {60 * s, good}, {63 * s, good}, {64 * s, bad}}, 64 * s, 0},
		{"clear at two samples, forgiven", []sample{{0, bad}, {60 * s, good}, {66 * s, good}, {67 * s, bad}}, 67 * s, 67 * s},
		{"flapping", []sample{{0, bad}, {58 * s, good}, {61 * s, bad}, {62 * s, good}, {66 * s, bad}}, 66 * s, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			for forgive, want := range map[time.Duration]time.Duration{0: v.kubelet, 5 * s: v.want} {
				w := watch{ts: []Threshold{soft}, settings: Settings{SoftForgive: forgive}}
				for _, sample := range v.samples {
					w.at(sample.at, one(MemoryAvailable, sample.o))
				}
				if len(w.pressure.Met) != 1 || w.pressure.Met[0].Since != want {
					t.Errorf("with soft_forgive %s: %+v, want since %s", forgive, w.pressure.Met, want)
				}
			}
		})
	}
	w := watch{ts: []Threshold{soft}, settings: Settings{SoftForgive: 5 * s}}
	w.at(0, one(MemoryAvailable, bad))
	w.at(118*s, one(MemoryAvailable, good))
	if w.at(120*s, one(MemoryAvailable, bad)); !slices.Equal(w.due(), []string{"memory.available:soft"}) {
		t.Errorf("due: %v after the whole grace period", w.due())
	}
}

// TestCorrection4OnlyTheChosenSignalIsJudgedAgain: the kubelet goes on to evict
// after a successful reclaim when any other threshold is met, grace or not.
func TestCorrection4OnlyTheChosenSignalIsJudgedAgain(t *testing.T) {
	chosen := Threshold{Signal: ImageFSAvailable, Value: Percent(15), MinReclaim: Percent(5)}
	for _, v := range []struct {
		name string
		o    Observation
		want bool
	}{
		{"at value and minimum reclaim", read(20, 100), true},
		{"just below", read(19, 100), false},
		{"at the value", read(15, 100), false},
		{"not read", Observation{Available: 50, Capacity: 100, Status: Failed}, false},
		{"absent", Observation{}, false},
	} {
		if got := Relieved(chosen, v.o); got != v.want {
			t.Errorf("%s: relieved = %v, want %v", v.name, got, v.want)
		}
	}
	// A soft memory threshold that is met and in its grace period: in the kubelet
	// it costs a pod. Relieved cannot even see it.
	w := watch{ts: []Threshold{chosen, {Signal: MemoryAvailable, Kind: Soft, Value: Bytes(gi), Grace: minute}}}
	obs := one(ImageFSAvailable, read(10, 100))
	obs[MemoryAvailable] = read(1, 4*gi)
	w.at(0, obs)
	obs[ImageFSAvailable] = read(20, 100)
	if w.at(1, obs); len(w.due()) != 0 || !Relieved(chosen, obs[ImageFSAvailable]) {
		t.Errorf("due after a successful reclaim: %v", w.due())
	}
}

// TestCorrection5MissingUsageRanksLast: in the kubelet a pod without statistics
// is evicted first.
func TestCorrection5MissingUsageRanksLast(t *testing.T) {
	cs := []Candidate{
		{ID: "no-stats", Priority: -1000},
		{ID: "small", Memory: Known(mi), Priority: 1000, MemoryRequest: gi},
		{ID: "no-stats-important", Priority: 5},
	}
	kubelet, want := "no-stats", []string{"small", "no-stats", "no-stats-important"}
	ranked := Rank(cs, MemoryAvailable, SingleFS, nil, 0)
	if got := ids(ranked); !slices.Equal(got, want) || got[0] == kubelet {
		t.Errorf("ranked %v, want %v", got, want)
	}
	for _, k := range ranked[1].Keys {
		if known := k.Known(); known != (k.Key == KeyPriority) || ranked[1].Known {
			t.Errorf("%s of a pod without statistics is %d, known %v", k.Key, k.Value, known)
		}
	}
}

// TestCorrection6InodesAreComparedWithInodes: the kubelet subtracts a request in
// bytes from a number of inodes.
func TestCorrection6InodesAreComparedWithInodes(t *testing.T) {
	inodes := func(n int64) DiskUsage { return DiskUsage{Rootfs: n, Known: true} }
	cs := []Candidate{
		{ID: "few", Inodes: inodes(10)},
		{ID: "many-with-request", Inodes: inodes(100_000), StorageRequest: gi},
	}
	kubelet, want := []string{"few", "many-with-request"}, []string{"many-with-request", "few"}
	for _, s := range []Signal{NodeFSInodesFree, ImageFSInodesFree, ContainerFSInodesFree} {
		ranked := Rank(cs, s, SingleFS, nil, 0)
		if got := ids(ranked); !slices.Equal(got, want) || slices.Equal(got, kubelet) {
			t.Errorf("%s: ranked %v, want %v", s, got, want)
		}
		if ranked[0].Request != 0 || ranked[0].Usage != 100_000 {
			t.Errorf("%s: %+v", s, ranked[0])
		}
	}
}

// TestCorrection7WhatCannotHelpIsNoCandidate: the kubelet evicts by priority even
// who uses nothing of what is short.
func TestCorrection7WhatCannotHelpIsNoCandidate(t *testing.T) {
	volumes := func(n int64) DiskUsage { return DiskUsage{Volumes: n, Known: true} }
	cs := []Candidate{
		{ID: "none", Priority: -10, Disk: volumes(0)},
		{ID: "tiny", Priority: -5, Disk: volumes(9)},
		{ID: "one-percent", Priority: 5, Disk: volumes(10)},
		{ID: "unknown", Priority: 0},
	}
	kubelet, want := "none", []string{"one-percent", "unknown", "tiny", "none"}
	ranked := Rank(cs, NodeFSAvailable, SingleFS, nil, 1000)
	if got := ids(ranked); !slices.Equal(got, want) || got[0] == kubelet {
		t.Errorf("ranked %v, want %v", got, want)
	}
	for i, want := range []string{"", "", ExcludedTooSmall, ExcludedUsesNone} {
		if ranked[i].Excluded != want || (ranked[i].Position == 0) != (want != "") {
			t.Errorf("%s: position %d, excluded %q, want %q", ranked[i].ID, ranked[i].Position, ranked[i].Excluded, want)
		}
	}
	// Where nobody has 1 %, who has next to nothing is not to blame, and others are, in
	// the usual order.
	const mib = 1 << 20
	cs[1].Disk, cs[2].Disk = volumes(mib), volumes(mib-1)
	if got := ids(Rank(cs, NodeFSAvailable, SingleFS, nil, 1000*mib)); !slices.Equal(got, []string{"tiny", "unknown", "one-percent", "none"}) {
		t.Errorf("with a large deficit ranked %v", got)
	}
	// Images are of no pod: with a split imagefs nobody can help it.
	for _, r := range Rank(cs, ImageFSAvailable, SplitFS, nil, 1000) {
		if r.Known && r.Excluded == "" {
			t.Errorf("%s is stopped for images", r.ID)
		}
	}
}

// TestCorrection8TheNextStopWaitsForTheBytes: the kubelet takes the next pod
// before the first one's memory is back.
func TestCorrection8TheNextStopWaitsForTheBytes(t *testing.T) {
	for _, v := range []struct {
		name                        string
		before, available, expected int64
		waited                      time.Duration
		want                        bool
	}{
		{"nothing yet", 100, 100, 1000, 0, false},
		{"just below 80 %", 100, 899, 1000, 4 * time.Second, false},
		{"80 %", 100, 900, 1000, 0, true},
		{"80 % of few", 0, 4, 5, 0, true},
		{"less than 80 % of few", 0, 3, 4, 0, false},
		{"used by others meanwhile", 100, 50, 1000, 5*time.Second - 1, false},
		{"5 s", 100, 50, 1000, 5 * time.Second, true},
		{"nothing expected", 100, 50, 0, 0, true},
	} {
		e := Effect{Signal: MemoryAvailable, Before: v.before, Available: v.available, Expected: v.expected, Waited: v.waited}
		if got := e.Settled(); got != v.want {
			t.Errorf("%s: settled = %v, want %v", v.name, got, v.want)
		}
	}
}

// TestDiskIsWaitedFor: files are deleted long after their pod has ended.
func TestDiskIsWaitedFor(t *testing.T) {
	const back = 900
	for _, v := range []struct {
		name                string
		available, expected int64
		waited, rising      time.Duration
		pressed, want       bool
	}{
		{"nothing yet", 100, 1000, 29 * time.Second, 29 * time.Second, true, false},
		{"30 s", 100, 1000, 30 * time.Second, 30 * time.Second, true, true},
		{"80 %, and nothing is missing", back, 1000, 0, 0, false, true},
		{"80 %, and more comes", back, 1000, 6 * time.Second, 5*time.Second - 1, true, false},
		{"80 %, and no more comes", back, 1000, 6 * time.Second, 5 * time.Second, true, true},
		{"more comes after 30 s", back, 1000, time.Minute, 0, true, false},
		{"more comes after ten minutes", back, 1000, 10 * time.Minute, 0, true, true},
		{"what it used was not known", 100, 0, 29 * time.Second, 29 * time.Second, true, false},
		{"what it used was not known, and nothing is missing", 100, 0, 0, 0, false, true},
	} {
		e := Effect{
			Signal: ImageFSInodesFree, Before: 100, Available: v.available, Expected: v.expected,
			Waited: v.waited, Rising: v.rising, Pressed: v.pressed,
		}
		if got := e.Settled(); got != v.want {
			t.Errorf("%s: settled = %v, want %v", v.name, got, v.want)
		}
	}
}

func TestMoved(t *testing.T) {
	m := Met{Threshold: Threshold{Signal: MemoryAvailable, Value: Bytes(1000), MinReclaim: Bytes(500)}, Deficit: 1400}
	stall := Met{Threshold: Threshold{Signal: MemoryStall, Value: Percent(80)}, Deficit: 700_000}
	for _, v := range []struct {
		name string
		met  Met
		now  Observation
		want bool
	}{
		{"a twentieth of the deficit", m, read(170, 4000), true},
		{"less than that, whatever the victim gave back", m, read(169, 4000), false},
		{"nothing", m, read(100, 4000), false},
		{"fallen", m, read(50, 4000), false},
		{"relieved", m, read(1500, 4000), true},
		{"not read", m, Observation{Status: Failed}, true},
		{"a stall", stall, read(35_100, StallCapacity), true},
		{"a stall that goes on", stall, read(35_099, StallCapacity), false},
	} {
		if got := Moved(v.met, 100, v.now); got != v.want {
			t.Errorf("%s: moved = %v, want %v", v.name, got, v.want)
		}
	}
}
