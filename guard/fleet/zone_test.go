package fleet

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// rates returns the defaults with the smallest zone that has a state of its own.
func rates(minZone int) Rates {
	r := DefaultRates()
	r.MinZone = minZone
	return r
}

// Cases of the tests in pkg/controller/nodelifecycle of Kubernetes, first as its controller decides, then as a fleet with
// the default MinZone does.
func TestZoneState(t *testing.T) {
	for _, tt := range []struct {
		name           string
		wanting, of    int
		upstream, ours State
	}{
		{"Z1: an empty zone", 0, 0, Normal, Normal},
		{"Z2: a zone of one that is well", 0, 1, Normal, Normal},
		{"Z3: a zone of one", 1, 1, Full, Normal},
		{"Z4: two are too few to be partial", 2, 3, Normal, Normal},
		{"Z5: all of three", 3, 3, Full, Normal},
		{"Z6: three of four", 3, 4, Partial, Partial},
		{"Z7: two of five", 2, 5, Normal, Normal},
		{"Z7: three of five", 3, 5, Partial, Partial},
		{"Z8: half", 3, 6, Normal, Normal},
		{"all of four", 4, 4, Full, Full},
		{"exactly the threshold, where float64 rounds down", 55, 100, Partial, Partial},
		{"one below the threshold", 54, 100, Normal, Normal},
		{"the threshold of a large zone", 5500, 10_000, Partial, Partial},
		{"one below it", 5499, 10_000, Normal, Normal},
		{"all but one", 99, 100, Partial, Partial},
		{"more than there are members", 5, 4, Full, Full},
	} {
		z := Zone{Members: tt.of, Wanting: tt.wanting}
		if got := rates(1).State(z); got != tt.upstream {
			t.Errorf("%s: %d of %d with min_zone 1: %s, want %s", tt.name, tt.wanting, tt.of, got, tt.upstream)
		}
		if got := DefaultRates().State(z); got != tt.ours {
			t.Errorf("%s: %d of %d: %s, want %s", tt.name, tt.wanting, tt.of, got, tt.ours)
		}
	}
}

// The trap that integers avoid.
func TestFloatingPointMisses55Of100(t *testing.T) {
	unhealthy, n := 0.55, 100.0
	if 55 >= unhealthy*n {
		t.Error("float64 would do")
	}
}

func TestUnhealthy(t *testing.T) {
	r := DefaultRates()
	r.Unhealthy = 333_333
	if a, b := r.State(Zone{9, 3}), r.State(Zone{10, 3}); a != Partial || b != Normal {
		t.Errorf("a third: %s, less than a third: %s", a, b)
	}
}

func TestRates(t *testing.T) {
	one := func(members, wanting int) map[string]Zone { return map[string]Zone{"z": {members, wanting}} }
	calm := func(z map[string]Zone) map[string]Zone {
		z["calm"] = Zone{Members: 1000}
		return z
	}
	r := DefaultRates()
	for _, tt := range []struct {
		name string
		view View
		want Millionths
	}{
		{"unknown zone", View{}, r.Rate},
		{"normal", View{Zones: one(10, 1)}, r.Rate},
		{"normal and large", View{Zones: one(1000, 549)}, r.Rate},
		{"smaller than min_zone", View{Zones: one(3, 3)}, r.Rate},
		{"partial, 50 members", View{Zones: one(50, 49)}, 0},
		{"partial, 51 members", View{Zones: one(51, 50)}, r.Secondary},
		{"full, 50 members, another zone is normal", View{Zones: calm(one(50, 50))}, 0},
		{"full, 51 members, another zone is normal", View{Zones: calm(one(51, 51))}, r.Secondary},
		{"full, 51 that want a stop, and memberships have expired", View{Zones: calm(one(3, 51))}, r.Secondary},
		{"full fleet", View{Zones: one(1000, 1000)}, 0},
		{"settling and normal", View{Zones: one(10, 1), Settling: true}, r.Secondary},
		{"settling and small and partial", View{Zones: one(50, 49), Settling: true}, r.Secondary},
		{"settling and full", View{Zones: one(1000, 1000), Settling: true}, r.Secondary},
		{"settling and paused", View{Settling: true, Paused: true}, 0},
		{"paused", View{Zones: one(10, 1), Paused: true}, 0},
	} {
		if got := r.Of(tt.view, "z"); got != tt.want {
			t.Errorf("%s: %s a second, want %s", tt.name, got, tt.want)
		}
	}
}

func TestFleetFull(t *testing.T) {
	for _, tt := range []struct {
		name  string
		zones map[string]Zone
		want  bool
	}{
		{"no zone", nil, false},
		{"one zone and all of it", map[string]Zone{"a": {10, 10}}, true},
		{"two zones and all of both", map[string]Zone{"a": {10, 10}, "b": {20, 20}}, true},
		{"one of two zones", map[string]Zone{"a": {10, 10}, "b": {20, 0}}, false},
		{"the other zone is partial", map[string]Zone{"a": {10, 10}, "b": {20, 19}}, false},
		{"only zones below min_zone", map[string]Zone{"a": {3, 3}, "b": {3, 3}}, false},
		{"a zone below min_zone that is well does not count", map[string]Zone{"a": {10, 10}, "b": {3, 0}}, true},
		{"unless most of the fleet is well", map[string]Zone{"a": {4, 4}, "b": {3, 0}, "c": {1, 0}}, false},
		{"exactly the share", map[string]Zone{"a": {11, 11}, "b": {3, 0}, "c": {3, 0}, "d": {3, 0}}, true},
		{"empty zones do not count", map[string]Zone{"a": {10, 10}, "b": {}}, true},
	} {
		if got := DefaultRates().FleetFull(tt.zones); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestSlot(t *testing.T) {
	for rate, want := range map[Millionths]time.Duration{
		0: 0, 1: 1_000_000 * time.Second, 10_000: 100 * time.Second, 100_000: 10 * time.Second,
		300_000: 4 * time.Second, 333_333: 4 * time.Second, 333_334: 3 * time.Second, 500_000: 2 * time.Second,
		500_001: 2 * time.Second, 1_000_000: 2 * time.Second, 9_000_000: 2 * time.Second,
	} {
		if got := Slot(rate); got != want {
			t.Errorf("%s a second: %s, want %s", rate, got, want)
		}
	}
}

func TestMillionths(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 0.1: "0.1", 0.01: "0.01", 0.55: "0.55", 12: "12", 100.25: "100.25", 0.000001: "0.000001"} {
		m, ok := MillionthsOf(f)
		text, err := json.Marshal(m)
		var back Millionths
		if !ok || err != nil || string(text) != want || json.Unmarshal(text, &back) != nil || back != m {
			t.Errorf("%v: %s, want %s (%v, %v)", f, text, want, ok, err)
		}
	}
	for _, f := range []float64{-0.1, 0.0000001, 0.1234567, 1e300} {
		if m, ok := MillionthsOf(f); ok {
			t.Errorf("%v: %s", f, m)
		}
	}
	var m Millionths
	for _, text := range []string{`"0.1"`, `-1`, `0.00000001`, `[]`} {
		if json.Unmarshal([]byte(text), &m) == nil {
			t.Errorf("parsed %s as %s", text, m)
		}
	}
	if got := Millionths(-1_500_000).String(); got != "-1.5" {
		t.Errorf("got %s", got)
	}
}

func TestStateNames(t *testing.T) {
	for s, want := range map[State]string{Normal: "normal", Partial: "partial", Full: "full"} {
		var back State
		if s.String() != want || back.UnmarshalText([]byte(want)) != nil || back != s {
			t.Errorf("%d is %s, want %s", s, s, want)
		}
	}
	var s State
	if err := s.UnmarshalText([]byte("odd")); err == nil || fmt.Sprint(State(9)) != "state(9)" {
		t.Errorf("an unknown state: %v, %s", err, State(9))
	}
}
