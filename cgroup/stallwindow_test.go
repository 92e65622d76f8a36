package cgroup

import (
	"testing"
	"time"
)

func TestStallWindow(t *testing.T) {
	const ms = time.Millisecond
	type reading struct{ at, total time.Duration }
	for name, c := range map[string]struct {
		readings      []reading
		stalled, over time.Duration // for the last reading
		ok            bool
	}{
		"one reading is no window":      {[]reading{{0, 5 * time.Second}}, 0, 0, false},
		"less than a window":            {[]reading{{0, 0}, {1999 * ms, 100 * ms}}, 0, 0, false},
		"exactly a window":              {[]reading{{0, 0}, {2000 * ms, 100 * ms}}, 100 * ms, 2000 * ms, true},
		"nothing stalled":               {[]reading{{0, 7 * ms}, {2000 * ms, 7 * ms}}, 0, 2000 * ms, true},
		"all stalled":                   {[]reading{{0, 0}, {2000 * ms, 2000 * ms}}, 2000 * ms, 2000 * ms, true},
		"more than all is all":          {[]reading{{0, 0}, {2000 * ms, 2001 * ms}}, 2000 * ms, 2000 * ms, true},
		"what was before is forgotten":  {[]reading{{0, 0}, {1000 * ms, 1000 * ms}, {3000 * ms, 1100 * ms}}, 100 * ms, 2000 * ms, true},
		"a little more than the window": {[]reading{{0, 0}, {500 * ms, 10 * ms}, {2400 * ms, 30 * ms}}, 30 * ms, 2400 * ms, true},
		"the clock went back":           {[]reading{{5000 * ms, 0}, {7000 * ms, 0}, {1000 * ms, 0}}, 0, 0, false},
		"the total went back":           {[]reading{{0, 500 * ms}, {2000 * ms, 500 * ms}, {4000 * ms, 100 * ms}}, 0, 0, false},
		"anew after it went back":       {[]reading{{0, 500 * ms}, {2000 * ms, 100 * ms}, {4000 * ms, 150 * ms}}, 50 * ms, 2000 * ms, true},
		"twice at the same time":        {[]reading{{0, 0}, {2000 * ms, 10 * ms}, {2000 * ms, 10 * ms}}, 10 * ms, 2000 * ms, true},
	} {
		t.Run(name, func(t *testing.T) {
			var w StallWindow
			var stalled, over time.Duration
			var ok bool
			for _, r := range c.readings {
				stalled, over, ok = w.Add(r.at, r.total, 2*time.Second)
			}
			if stalled != c.stalled || over != c.over || ok != c.ok {
				t.Errorf("got %s of %s, %t; want %s of %s, %t", stalled, over, ok, c.stalled, c.over, c.ok)
			}
		})
	}
}

// However frequent the readings are, the window keeps its length.
func TestStallWindowOfManyReadings(t *testing.T) {
	const window = 2 * time.Second
	for _, every := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 70 * time.Millisecond, time.Second} {
		var w StallWindow
		var total time.Duration
		for at := time.Duration(0); at < 30*time.Second; at += every {
			// Stalled a quarter of the time, but all the time within seconds 10 to 15.
			total += every / 4
			if at >= 10*time.Second && at < 15*time.Second {
				total += every - every/4
			}
			stalled, over, ok := w.Add(at, total, window)
			if ok != (at >= window) {
				t.Fatalf("every %s, at %s: %t", every, at, ok)
			}
			if !ok {
				continue
			}
			if over < window || over > window+window/stallSteps+every {
				t.Fatalf("every %s, at %s: looked %s back", every, at, over)
			}
			if at == 14*time.Second && stalled != over {
				t.Errorf("every %s: stalled %s of %s, want all", every, stalled, over)
			}
			if at == 20*time.Second && (stalled < over/4-every || stalled > over/4+every) {
				t.Errorf("every %s: stalled %s of %s, want a quarter", every, stalled, over)
			}
		}
	}
}

// A sleep of the machine is no time without a stall, however long it was.
func TestStallWindowAfterASleep(t *testing.T) {
	const ms = time.Millisecond
	for _, slept := range []time.Duration{0, 1500 * ms, 8 * time.Hour} {
		var w StallWindow
		w.Add(0, 0, 2*time.Second)
		w.Add(1000*ms, 900*ms, 2*time.Second)
		w.Slept(slept)
		if stalled, over, ok := w.Add(slept+2000*ms, 1800*ms, 2*time.Second); stalled != 1800*ms || over != 2*time.Second || !ok {
			t.Errorf("slept %s: stalled %s of %s, %t", slept, stalled, over, ok)
		}
	}
}

func TestStallWindowAnyWindow(t *testing.T) {
	var w StallWindow
	if _, _, ok := w.Add(time.Second, 0, 0); ok {
		t.Error("a window of 0 has passed")
	}
	if _, _, ok := w.Add(time.Second, 0, -time.Second); ok {
		t.Error("a window below 0 has passed")
	}
	if n := testing.AllocsPerRun(100, func() { w.Add(time.Hour, time.Minute, time.Second) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
