package policy

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRestraintSaved(t *testing.T) {
	r := restrained()
	stop(r, Hard, "default/a", minute)
	stop(r, Soft, "default/b", minute+1)
	r.Judge(IOStall, false)
	data, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again := restrained()
	if err := json.Unmarshal(data, again); err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("restored %+v, %v; want %+v", again, err, r)
	}
	other, err := LoadRestraint(data, "another boot", 5)
	if fresh := (&Restraint{bootID: "another boot", now: 5}); err != nil || !reflect.DeepEqual(other, fresh) {
		t.Errorf("on another boot %+v, %v", other, err)
	}
}

func TestRestraintGarbage(t *testing.T) {
	const now = 10 * minute
	for name, data := range map[string]string{
		"empty": "", "torn": `{"boot_id":"boot","no`, "of another kind": `[1]`, "of wrong types": `{"hard":"x"}`,
		"an unknown kind": `{"recent":[{"kind":"x"}]}`, "an unknown condition": `{"workloads":{"a":{"condition":"x"}}}`,
		"before the boot": `{"boot_id":"boot","now":-1}`, "in a thousand years": `{"boot_id":"boot","now":9223372036854775807}`,
		"too long": `{"boot_id":"` + strings.Repeat("x", maxSavedSize) + `"}`,
	} {
		r, err := LoadRestraint([]byte(data), "boot", now)
		if err == nil || !reflect.DeepEqual(r, &Restraint{bootID: "boot", now: now}) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if strings.Contains(name, "boot") != errors.Is(err, ErrImplausible) && name != "too long" && !strings.Contains(name, "thousand") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	// Times in the future and impossible counts hold back as much as they can,
	// and not for ever.
	data := `{"boot_id":"boot","now":600000000000,"hard":{"used":MANY,"at":9e18},"soft":{"used":2,"at":-9223372036854775808},
		"recent":[{"at":9e18,"kind":"hard"},{"at":-9e18,"kind":"soft"}],"fruitless":{"memory.available":-7,"io.stall":MANY,"gone":5},
		"workloads":{"a":{"last":9e18,"previous":9e18,"count":-1,"condition":"DiskPressure"},"b":{"last":0,"count":MANY,"condition":"DiskPressure"}}}`
	data = strings.NewReplacer("9e18", "9000000000000000000", "MANY", strconv.Itoa(math.MaxInt)).Replace(data)
	r, err := LoadRestraint([]byte(data), "boot", now)
	if err != nil {
		t.Fatal(err)
	}
	r.Configure(testBudget, testBackoff)
	want := BudgetView{
		Hard: BucketView{0, 3, 30 * time.Second}, Soft: BucketView{2, 2, 0}, LastHour: 1, PerHour: 20, Breakers: []Signal{IOStall},
		Workloads: []WorkloadView{{"a", 1, 0, 10 * time.Second}},
	}
	if got := r.Status(now); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := r.Status(now + time.Hour); got.LastHour != 0 || got.Hard.Left != 3 || len(got.Workloads) != 0 {
		t.Errorf("an hour later %+v", got)
	}
}

// FuzzRestraintJSON: no file, however broken, grants more than a full burst, or
// cannot be saved and loaded again.
func FuzzRestraintJSON(f *testing.F) {
	r := restrained()
	stop(r, Hard, "default/a", minute)
	stop(r, Soft, "default/b", minute+1)
	r.Judge(IOStall, false)
	data, err := json.Marshal(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, int64(2*minute))
	f.Add([]byte(`{"boot_id":"boot","now":1,"hard":{"used":-1,"at":-9000000000000000000}}`), int64(5))
	f.Add([]byte(`{"boot_id":"boot","recent":[{"at":1,"kind":"soft","before":{"used":-3}}],"workloads":{"a":{"count":-1}}}`), int64(0))
	f.Add([]byte(`{`), int64(-5))
	f.Fuzz(func(t *testing.T, data []byte, at int64) {
		now := time.Duration(at)
		if now < 0 || now > maxUptime {
			return
		}
		r, _ := LoadRestraint(data, "boot", now)
		r.Configure(testBudget, testBackoff)
		r.Return(Hard, MemoryAvailable, "a", now)
		for kind, most := range map[Kind]int{Hard: testBudget.Hard.Burst, Soft: testBudget.Soft.Burst} {
			n := 0
			for n <= most && stop(r, kind, "", now) == "" {
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
