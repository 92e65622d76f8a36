package policy

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// afterRestart returns the samples that the next run of the service has.
func afterRestart(t *testing.T, s *Samples, now time.Duration) Samples {
	t.Helper()
	b, err := json.Marshal(s.Saved("boot"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := LoadSamples(b, "boot", now)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// After a restart, growth, fill and outside fill are as they would have been without it.
func TestSamplesSurviveARestart(t *testing.T) {
	pods := func(a, b int64) []Candidate {
		return []Candidate{
			{ID: "a", Created: -minute, Memory: Known(a), Swap: Known(1), PIDs: Known(2)},
			{ID: "b", Created: -minute, Memory: Known(b), Apart: true},
		}
	}
	for name, now := range map[string]time.Duration{"from the oldest": 3*second + 1, "from the newest": 5 * second} {
		s := samplesOf(
			MemoryAvailable,
			reading{at: second, available: 1000, cgroup: Known(300), pods: pods(10, 20)},
			reading{at: 2500 * time.Millisecond, available: 900, cgroup: Known(300), pods: pods(20, 20)},
			reading{at: 3 * second, available: 800, cgroup: Known(310), pods: pods(30, 30)},
		)
		next := afterRestart(t, s, now)
		cs, o := pods(90, 40), read(500, 10_000)
		for i := range cs {
			for _, pool := range []Pool{PoolMemory, PoolPIDs} {
				if got, want := next.Growth(&cs[i], pool, now), s.Growth(&cs[i], pool, now); got != want {
					t.Errorf("%s: %s of %s grows by %+v, want %+v", name, pool, cs[i].ID, got, want)
				}
			}
		}
		fall, outside := next.fall(MemoryAvailable, o, cs, Known(350), now)
		if wantFall, wantOutside := s.fall(MemoryAvailable, o, cs, Known(350), now); fall != wantFall || outside != wantOutside || fall == 0 {
			t.Errorf("%s: falls by %d, outside %d, want %d and %d", name, fall, outside, wantFall, wantOutside)
		}
	}
}

// Only the oldest and the newest sample are saved.
func TestFewSamplesAreSaved(t *testing.T) {
	var readings []reading
	for i := range 5 {
		readings = append(readings, reading{at: time.Duration(i) * second / 8, available: 100})
	}
	s := samplesOf(MemoryAvailable, readings...)
	next := afterRestart(t, s, second)
	if len(s.kept) != 5 || len(next.kept) != 2 || next.kept[0].at != 0 || next.kept[1].at != second/2 {
		t.Errorf("of %d samples, %d are saved", len(s.kept), len(next.kept))
	}
	if got := afterRestart(t, &Samples{}, second); len(got.kept) != 0 {
		t.Errorf("saved %+v", got)
	}
}

// Samples of another boot, of the future and with impossible amounts are not used.
func TestDamagedSamples(t *testing.T) {
	const sample = `{"at":1000,"signals":{"memory.available":{"Available":5,"Capacity":9,"At":1000,"Status":2}},"pods":{"a":[1,-7,3]},"pods_cgroup":-4}`
	for text, want := range map[string]int{
		`{"boot_id":"boot","samples":[` + sample + `]}`:              1,
		`{"boot_id":"other","samples":[` + sample + `]}`:             0,
		`{"boot_id":"boot","samples":[{"at":2000000000},{"at":-1}]}`: 0,
		`{"boot_id":"boot","samples":[{"at":2000},` + sample + `]}`:  1,
		`{"boot_id":"boot"}`: 0,
		`null`:               0,
	} {
		s, err := LoadSamples([]byte(text), "boot", second)
		if err != nil || len(s.kept) != want {
			t.Errorf("%s: %d samples, error %v", text, len(s.kept), err)
		}
	}
	s, _ := LoadSamples([]byte(`{"boot_id":"boot","samples":[`+sample+`]}`), "boot", second)
	if want := (podSample{memory: Known(1), pids: Known(3)}); s.kept[0].pods["a"] != want || s.kept[0].cgroup != Known(0) {
		t.Errorf("%+v", s.kept[0])
	}
	const gifts = `,"gifts":[{"pool":"memory","at":1000,"amount":7},{"pool":"memory","at":2000000000,"amount":7},{"pool":"memory","at":1000,"amount":-7}]}`
	if s, err := LoadSamples([]byte(`{"boot_id":"boot","samples":[`+sample+`]`+gifts), "boot", second); err != nil || len(s.gifts) != 1 {
		t.Errorf("gifts %+v, error %v", s.gifts, err)
	}
	for _, text := range []string{`{`, `{"samples":3}`, `{"samples":[{"signals":{"no.such":{}}}]}`, `{"samples":[{"pods":{"a":["x"]}}]}`} {
		if s, err := LoadSamples([]byte(text), "boot", second); err == nil || len(s.kept) > 0 {
			t.Errorf("%s: %+v, error %v", text, s, err)
		}
	}
}

// Whatever the file contains, nothing panics, and what is loaded can be saved and is the same then.
func FuzzLoadSamples(f *testing.F) {
	f.Add(`{"boot_id":"boot","samples":[{"at":1,"signals":{"pid.available":{"Available":1,"Capacity":1}},"pods":{"a":[1,2,3]}},{"at":2}]}`)
	f.Add(`{"boot_id":"boot","samples":[{"at":9223372036854775807,"pods":{"":[-1]}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := LoadSamples([]byte(text), "boot", minute)
		if err != nil {
			return
		}
		s.Growth(&Candidate{ID: "a", Memory: Known(1), Created: -1}, PoolMemory, minute)
		s.fall(PIDAvailable, read(1, 2), nil, Amount{}, minute)
		once := afterRestart(t, &s, minute)
		if again := afterRestart(t, &once, minute); !reflect.DeepEqual(once, again) {
			t.Errorf("%+v, then %+v", once, again)
		}
	})
}
