package policy

import (
	"math"
	"testing"
	"time"
)

func TestVectorsC(t *testing.T) {
	const at = 5 * time.Second
	for _, v := range []struct {
		id                  string
		got                 Observation
		available, capacity int64
	}{
		{"C-memory", ObserveUsed(2*gi, gi, at), gi, 2 * gi},
		{"C-allocatable", ObserveUsed(2*gi, gi, at), gi, 2 * gi},
		{"C-nodefs", ObserveSpace(1024, 2048, at), 1024, 2048},
		{"C-nodefs-inodes", ObserveSpace(1024, 1048576, at), 1024, 1048576},
		{"C-imagefs", ObserveSpace(mi, 2*mi, at), mi, 2 * mi},
		{"C-imagefs-inodes", ObserveSpace(1024, 1048576, at), 1024, 1048576},
		{"C-containerfs", ObserveSpace(2*mi, 8*mi, at), 2 * mi, 8 * mi},
		{"C-containerfs-inodes", ObserveSpace(2048, 2048, at), 2048, 2048},
		{"C-pid", ObserveUsed(255816, 1000, at), 254816, 255816},
	} {
		t.Run(v.id, func(t *testing.T) {
			if want := (Observation{Available: v.available, Capacity: v.capacity, At: at, Status: OK}); v.got != want {
				t.Errorf("got %+v, want %+v", v.got, want)
			}
		})
	}
}

func TestObserveEdges(t *testing.T) {
	for name, v := range map[string]struct{ got, want Observation }{
		"more used than there is":  {ObserveUsed(100, 150, 1), Observation{0, 100, 1, OK, 0, 50}},
		"no capacity":              {ObserveUsed(0, 150, 1), Observation{At: 1, Status: Failed}},
		"negative working set":     {ObserveUsed(100, -1, 1), Observation{At: 1, Status: Failed}},
		"no inodes (btrfs)":        {ObserveSpace(0, 0, 1), Observation{At: 1}},
		"negative total":           {ObserveSpace(0, -1, 1), Observation{At: 1, Status: Failed}},
		"more free than there is":  {ObserveSpace(5, 4, 1), Observation{4, 4, 1, OK, 0, 0}},
		"a fifth stalled":          {ObserveStall(400*time.Millisecond, 2*time.Second, 1), Observation{800_000, StallCapacity, 1, OK, 0, 0}},
		"stalled all the time":     {ObserveStall(3*time.Second, 2*time.Second, 1), Observation{0, StallCapacity, 1, OK, 0, 0}},
		"never stalled, for ever":  {ObserveStall(0, math.MaxInt64, 1), Observation{StallCapacity, StallCapacity, 1, OK, 0, 0}},
		"no window":                {ObserveStall(0, 0, 1), Observation{At: 1, Status: Failed}},
		"a stall that went back":   {ObserveStall(-1, 2*time.Second, 1), Observation{At: 1, Status: Failed}},
		"a capacity of PIDs alone": {ObserveUsed(-1, 3, 1), Observation{At: 1, Status: Failed}},
	} {
		if v.got != v.want {
			t.Errorf("%s: got %+v, want %+v", name, v.got, v.want)
		}
	}
}

func TestVectorsL(t *testing.T) {
	for _, v := range []struct {
		id                                     string
		available, workingSet, usage, required int64
		want                                   int64
		ok                                     bool
	}{
		{"L1", 3 * gi, gi, 2 * gi, gi, 4 * gi, true},
		{"L2", 4 * gi, gi, 3 * gi, gi, 6 * gi, true},
		{"L3-usage", 4 * gi, gi, -1, gi, 0, false},
		{"L3-workingset", 4 * gi, -1, 3 * gi, gi, 0, false},
		{"L3-capacity", -2, 1, gi, gi, 0, false},
	} {
		t.Run(v.id, func(t *testing.T) {
			got, ok := TriggerLevel(v.available+v.workingSet, v.required, v.usage, v.workingSet)
			if got != v.want || ok != v.ok {
				t.Errorf("got %d, %v; want %d, %v", got, ok, v.want, v.ok)
			}
		})
	}
	if _, ok := TriggerLevel(gi, 2*gi, gi, gi); ok {
		t.Error("a threshold above the capacity has a level")
	}
}
