package policy

import (
	"slices"
	"testing"
	"time"
)

// The deliberate differences from the kubelet that Decide does not replace, one test each.

// TestCorrection1SignalsAreIndependent: a signal that cannot be read, or that is still met, does not
// affect the result of another. In the kubelet, a failed filesystem stat also switches memory
// protection off.
func TestCorrection1SignalsAreIndependent(t *testing.T) {
	ts := thresholds(t,
		map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "pid.available": "5%"},
		map[string]string{"imagefs.available": "20%"}, map[string]string{"imagefs.available": "1m"}, nil)
	short := map[Signal]Observation{
		MemoryAvailable: read(50*mi, gi), NodeFSAvailable: read(1, 100), PIDAvailable: read(1, 100), ImageFSAvailable: read(1, 100),
	}
	alone := map[Signal]Pressure{} // each as if the others did not exist
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

// TestCorrection2OrderIsFixed: in the kubelet, map iteration determines the order of hard and soft
// memory thresholds, and of disk and PIDs.
func TestCorrection2OrderIsFixed(t *testing.T) {
	all := map[string]string{}
	grace := map[string]string{}
	var obs Observations
	for _, s := range Signals() {
		all[s.String()], grace[s.String()] = "50%", "1m"
		obs[s] = read(1, 100)
	}
	ts := thresholds(t, all, all, grace, nil)
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

// TestCorrection3OneGoodSampleDoesNotForgive: in the kubelet, a single good sample restarts the grace
// period, so it never acts on a flapping signal.
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
		kubelet, want time.Duration // first-met time at the last sample
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

// TestCorrection4OnlyTheChosenSignalIsJudgedAgain: after a successful reclaim, the kubelet still evicts
// if any other threshold is met, in its grace period or not.
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
	// In the kubelet, a soft memory threshold that is met but in its grace period costs a pod. Relieved
	// does not even get to see it.
	w := watch{ts: []Threshold{chosen, {Signal: MemoryAvailable, Kind: Soft, Value: Bytes(gi), Grace: minute}}}
	obs := one(ImageFSAvailable, read(10, 100))
	obs[MemoryAvailable] = read(1, 4*gi)
	w.at(0, obs)
	obs[ImageFSAvailable] = read(20, 100)
	if w.at(1, obs); len(w.due()) != 0 || !Relieved(chosen, obs[ImageFSAvailable]) {
		t.Errorf("due after a successful reclaim: %v", w.due())
	}
}

// TestCorrection5MissingUsageRanksLast: the kubelet evicts a pod without statistics first.
func TestCorrection5MissingUsageRanksLast(t *testing.T) {
	cs := []Candidate{
		{ID: "no-stats", Priority: -1000},
		{ID: "small", Memory: Known(mi), Priority: 1000, MemoryRequest: gi},
		{ID: "no-stats-important", Priority: 5},
	}
	kubelet, want := "no-stats", []string{"small", "no-stats", "no-stats-important"}
	ranked := Rank(cs, MemoryAvailable, SingleFS, nil)
	if got := ids(ranked); !slices.Equal(got, want) || got[0] == kubelet {
		t.Errorf("ranked %v, want %v", got, want)
	}
	for _, k := range ranked[1].Keys {
		if known := k.Known(); known != (k.Key == KeyPriority || k.Key == KeyCulprit) || ranked[1].Known() {
			t.Errorf("%s of a pod without statistics is %d, known %v", k.Key, k.Value, known)
		}
	}
}

// TestCorrection6InodesAreComparedWithInodes: the kubelet subtracts a request in bytes from a number of
// inodes.
func TestCorrection6InodesAreComparedWithInodes(t *testing.T) {
	inodes := func(n int64) DiskUsage { return DiskUsage{Rootfs: Exactly(n), Logs: Exactly(0), Volumes: Exactly(0)} }
	cs := []Candidate{
		{ID: "few", Inodes: inodes(10)},
		{ID: "many-with-request", Inodes: inodes(100_000), StorageRequest: gi},
	}
	kubelet, want := []string{"few", "many-with-request"}, []string{"many-with-request", "few"}
	for _, s := range []Signal{NodeFSInodesFree, ImageFSInodesFree, ContainerFSInodesFree} {
		ranked := Rank(cs, s, SingleFS, nil)
		if got := ids(ranked); !slices.Equal(got, want) || slices.Equal(got, kubelet) {
			t.Errorf("%s: ranked %v, want %v", s, got, want)
		}
		if ranked[0].Request != 0 || ranked[0].Usage != 100_000 {
			t.Errorf("%s: %+v", s, ranked[0])
		}
	}
}
