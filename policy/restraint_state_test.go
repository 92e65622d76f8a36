package policy

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// used returns a restraint with stops of several kinds and a pool with fruitless stops.
func used() *Restraint {
	r := restrained()
	finish(r, stopOf(Hard, "a"), 0, 0, minute)
	disk, limit := stopOf(Hard, "disk"), stopOf(Soft, "b")
	disk.Pool, disk.Signal, disk.Culprit, limit.Cause = PoolImageInodes, ImageFSInodesFree, true, CauseLimit
	r.Begin(*disk, minute)
	r.Begin(*limit, minute+1)
	r.AwaitDisk("b", Wait{PoolNodeBytes, NodeFSAvailable, 1, 2})
	r.End("b", 0)
	return r
}

// Past stops, the budget and the breakers survive a restart; times of another boot have no meaning.
func TestRestraintSaved(t *testing.T) {
	r := used()
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.stops {
		r.stops[i].Created, r.stops[i].met = 0, r.now // not saved: one only matters before a stop, and of the other, the worst is assumed
	}
	again := restrained()
	if err := json.Unmarshal(data, again); err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("restored %+v, %v; want %+v", again, err, r)
	}
	other, err := LoadRestraint(data, "another boot", 5)
	if fresh := (&Restraint{bootID: "another boot", now: 5}); err != nil || !reflect.DeepEqual(other, fresh) {
		t.Errorf("on another boot %+v, %v", other, err)
	}
	late := r.Status(5 * minute)
	if got := restart(t, again, 4*minute).Status(5 * minute); !reflect.DeepEqual(got, late) {
		t.Errorf("restarted later %+v, want %+v", got, late)
	}
}

func TestRestraintGarbage(t *testing.T) {
	const now = 10 * minute
	for name, data := range map[string]string{
		"empty": "", "torn": `{"boot_id":"boot","no`, "of another kind": `[1]`, "of wrong types": `{"stops":"x"}`,
		"an unknown kind": `{"stops":[{"kind":"x"}]}`, "an unknown pool": `{"breakers":{"x":{}}}`,
		"before the boot": `{"boot_id":"boot","now":-1}`, "in a thousand years": `{"boot_id":"boot","now":9223372036854775807}`,
		"too long": `{"boot_id":"` + strings.Repeat("x", maxSavedSize) + `"}`,
	} {
		r, err := LoadRestraint([]byte(data), "boot", now)
		if err == nil || !reflect.DeepEqual(r, &Restraint{bootID: "boot", now: now}) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		want := name == "before the boot" || name == "in a thousand years" || name == "too long"
		if errors.Is(err, ErrImplausible) != want {
			t.Errorf("%s: error %v", name, err)
		}
	}
	// Times in the future and impossible counts restrict as much as possible, but not forever.
	data := `{"boot_id":"boot","now":600000000000,
		"breakers":{"memory":{"fruitless":-7},"nodefs bytes":{"fruitless":MANY,"need":-5,"seen":9e18},"pid":{"fruitless":3,"seen":-9e18}},
		"stops":[{"workload":"a","sandbox":"a","kind":"hard","pool":"memory","at":9e18,"token":true,"taken":9e18,"count":-1,"expected":-1,"back":-1,"need":-1},
			{"workload":"b","sandbox":"b","pool":"memory","at":0,"count":MANY,"token":true,"taken":-9e18},
			{"workload":"c","sandbox":"c","pool":"pid","cause":"limit","kind":"soft","at":0,"token":true,"taken":9e18,"over":false},
			{"sandbox":"d","pool":"nodefs bytes","at":0,"next":{"pool":"nodefs inodes","expected":-1}},
			{"sandbox":"e","pool":"pid","at":0,"over":true,"next":{"pool":"nodefs bytes"}},
			{"sandbox":"f","pool":"pid","at":0,"over":true,"next":{"pool":"memory"}},
			{"sandbox":"g","pool":"pid","at":0,"over":true,"next":{"pool":"imagefs bytes"}},
			{"sandbox":"h","pool":"pid","at":0,"over":true,"next":{"pool":"imagefs bytes"}},
			{"sandbox":"i","pool":"pid","at":0,"over":true,"waits":[{"pool":"pid"},{"pool":"containerfs bytes","expected":-1},{"pool":"containerfs bytes"}]}]}`
	data = strings.NewReplacer("9e18", "9000000000000000000", "MANY", strconv.Itoa(math.MaxInt)).Replace(data)
	r, err := LoadRestraint([]byte(data), "boot", now)
	if err != nil {
		t.Fatal(err)
	}
	r.Configure(testBudget, testBackoff)
	if r.Unfinished(PoolPIDs) != nil || r.Unfinished(PoolMemory) == nil {
		t.Error("the stop for a limit is in flight for a pool, or the one for memory is not")
	}
	if s := r.Unfinished(PoolNodeBytes); s == nil || s.Sandbox != "d" {
		t.Errorf("in flight for nodefs: %+v", s)
	}
	if s := r.Unfinished(PoolImageBytes); s == nil || s.Sandbox != "h" {
		t.Errorf("in flight for imagefs: %+v", s)
	}
	if s := r.Unfinished(PoolContainerBytes); s == nil || s.Sandbox != "i" || len(s.Waits) > 0 {
		t.Errorf("in flight for containerfs: %+v", s)
	}
	want := BudgetView{
		Hard: BucketView{2, 3, 0, 1}, Soft: BucketView{1, 2, 0, 1}, PerHour: 20, Breakers: []Pool{PoolNodeBytes},
		Workloads: []WorkloadView{{"a", 1, 0, 10 * second}},
	}
	if got := r.Status(now); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for i := range r.stops {
		if s := &r.stops[i]; s.At > now || s.Taken > now || s.Count < 1 || s.Count > maxInARow || s.Expected < 0 || s.Back < 0 || s.Need < 0 ||
			len(s.Waits) > 0 && (s.Waits[0].Expected < 0 || !s.Waits[0].Pool.IsDisk() || slices.Contains([]string{"e", "f", "g"}, s.Sandbox)) {
			t.Errorf("restored %+v", s)
		}
	}
	r.End("a", 0)
	look(r, now, now+time.Hour)
	if got := r.Status(now + time.Hour); got.Hard.LastHour != 0 || got.Hard.Left != 3 || len(got.Workloads) != 0 || len(got.Breakers) != 0 {
		t.Errorf("an hour later %+v", got)
	}
}

// An earlier version knew one disk at most that waits for a stop. The next run waits for it as well.
func TestRestraintOfAnEarlierVersion(t *testing.T) {
	const file = `{"boot_id":"boot","now":120,"stops":[
		{"workload":"d/a","sandbox":"a","kind":"hard","pool":"memory","signal":"memory.available","at":100,"count":1,"uid":"a","available":5,"expected":9,
			"need":3,"outside":{"value":2,"known":true},"back":9,"over":true,"judged":false,"token":true,"taken":100,
			"next":{"pool":"nodefs bytes","signal":"nodefs.available","available":7,"expected":80}},
		{"workload":"d/b","sandbox":"b","kind":"soft","pool":"pid","signal":"pid.available","at":110,"count":1,"uid":"b","pass":4,"pod":"d/b","grace":60,
			"expected":9,"need":3,"outside":{"value":2,"known":true},"back":0,"over":false,"judged":false,"token":true,"taken":110,
			"next":{"pool":"imagefs inodes","signal":"imagefs.inodesFree","available":8,"expected":90}}]}`
	r, err := LoadRestraint([]byte(file), "boot", 130)
	if err != nil {
		t.Fatal(err)
	}
	r.Configure(testBudget, testBackoff)
	r = restart(t, r, 140)
	if s := r.Unfinished(PoolPIDs); s == nil || s.Sandbox != "b" || r.Unfinished(PoolImageInodes) != nil {
		t.Errorf("in flight for PIDs: %+v", s)
	}
	r.End("b", 9)
	for p, want := range map[Pool]Wait{
		PoolNodeBytes: {PoolNodeBytes, NodeFSAvailable, 7, 80}, PoolImageInodes: {PoolImageInodes, ImageFSInodesFree, 8, 90},
	} {
		if s := r.Unfinished(p); s == nil || (Wait{s.Pool, s.Signal, s.Available, s.Expected}) != want {
			t.Errorf("in flight for %s: %+v", p, s)
		}
	}
	if v := r.Status(140); v.Hard.Left != 2 || v.Soft.Left != 1 {
		t.Errorf("budget %+v", v)
	}
}

// FuzzRestraintJSON: no broken file grants more than a full burst, and every restored state can be
// saved and loaded again.
func FuzzRestraintJSON(f *testing.F) {
	data, err := json.Marshal(used())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, int64(2*minute))
	f.Add([]byte(`{"boot_id":"boot","now":1,"stops":[{"sandbox":"a","token":true,"taken":-9000000000000000000}]}`), int64(5))
	f.Add([]byte(`{"boot_id":"boot","stops":[{"sandbox":"a","token":true,"count":-1}]}`), int64(0))
	f.Add([]byte(`{"boot_id":"boot","now":9,"breakers":{"pid":{"fruitless":5,"pods":{"value":-9223372036854775808,"known":true}}}}`), int64(3))
	f.Add([]byte(`{`), int64(-5))
	f.Fuzz(func(t *testing.T, data []byte, at int64) {
		now := time.Duration(at)
		if now < 0 || now > maxUptime {
			return
		}
		r, _ := LoadRestraint(data, "boot", now)
		r.Configure(testBudget, testBackoff)
		r.Undo("a")
		for p := range PoolCount {
			r.Judge(p, func(Signal) Amount { return Known(0) }, Known(0), now)
			r.Episode(p, Known(0), now)
		}
		for kind, most := range map[Kind]int{Hard: testBudget.Hard.Burst, Soft: testBudget.Soft.Burst} {
			n := 0
			for n <= most && try(r, stopOf(kind, strconv.Itoa(n)), now).By == "" {
				n++
			}
			if n > most {
				t.Fatalf("%d %s stops at once", n, kind)
			}
		}
		if n := restart(t, r, now); !reflect.DeepEqual(n.Status(now), r.Status(now)) {
			t.Fatalf("restored %+v, want %+v", n.Status(now), r.Status(now))
		}
	})
}
