package scenario

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// All guards are measured on the same node, beside a kubelet that evicts only where it is the guard.
func TestRivals(t *testing.T) {
	names := map[string]bool{}
	for _, r := range Rivals() {
		names[r.Name] = true
		if len(r.Profiles) != 1 || r.Profiles[0] != V2Kube {
			t.Errorf("%s is measured on %v", r.Name, r.Profiles)
		}
		if detail := r.Name == asInstalled || r.Name == calm; r.Detail != detail {
			t.Errorf("%s is a detail: %v", r.Name, r.Detail)
		}
		if got, want := len(ratesOf(r.Name)), len(hogRates); got != want && r.Name != calm {
			t.Errorf("%s has %d rates, want %d", r.Name, got, want)
		}
	}
	if !names[kubelet] || len(names) != len(rivals) {
		t.Errorf("guards %v", names)
	}
	text, err := json.Marshal(evictsAt("0%"))
	if err != nil || strings.Count(string(text), `"0%"`) != 5 {
		t.Errorf("a kubelet that does not evict: %s, %v", text, err)
	}
}

// Relief is from the first reading below a tenth to the first above a third, and the overshoot is the lowest reading
// between.
func TestDip(t *testing.T) {
	var d dip
	begin := time.Unix(1000, 0)
	at := 0
	see := func(percent int64) bool {
		at++
		return d.see(begin.Add(time.Duration(at)*time.Second), percent*10, 1000)
	}
	for i, tt := range []struct {
		percent, overshoot int64
		back               bool
		took               time.Duration
	}{
		{50, 0, false, 0},
		{10, 0, false, 0},
		{9, 10, false, 0},
		{3, 70, false, time.Second},
		{20, 70, false, 2 * time.Second},
		{5, 70, false, 3 * time.Second},
		{34, 70, true, 4 * time.Second},
	} {
		if back := see(tt.percent); back != tt.back || d.overshoot != tt.overshoot || d.took != tt.took {
			t.Errorf("reading %d: back %v, overshoot %d, took %s, want %+v", i, back, d.overshoot, d.took, tt)
		}
	}
}

// The rate of a hog is that of its own notes.
func TestRateOf(t *testing.T) {
	progress := func(bytes, at, began int64) (b []byte) {
		for _, word := range []int64{bytes, at, began} {
			b = binary.NativeEndian.AppendUint64(b, uint64(word))
		}
		return b
	}
	for _, tt := range []struct {
		progress []byte
		want     int
	}{
		{progress(400<<20, 5e9, 3e9), 200},
		{progress(0, 0, 3e9), 0},
		{progress(0, 0, 0), 0},
		{nil, 0},
	} {
		if got := rateOf(tt.progress); got != tt.want {
			t.Errorf("rate %d, want %d", got, tt.want)
		}
	}
}
