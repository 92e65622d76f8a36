package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// The uPlot files are the published ones, and no asset closes the element that contains it.
func TestAssets(t *testing.T) {
	for name, asset := range map[string]struct{ text, sum string }{
		"uPlot.iife.min.js": {plotScript, "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"},
		"uPlot.min.css":     {plotStyle, "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"},
		"uPlot.LICENSE":     {plotLicence, "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"},
		"page.js":           {text: pageScript},
		"page.css":          {text: pageStyle},
	} {
		sum := sha256.Sum256([]byte(asset.text))
		if got := hex.EncodeToString(sum[:]); asset.sum != "" && got != asset.sum {
			t.Errorf("%s: SHA-256 %s", name, got)
		}
		if text := strings.ToLower(asset.text); strings.Contains(text, "</script") || strings.Contains(text, "</style") || strings.Contains(text, "<!--") {
			t.Errorf("%s ends the element that it is in", name)
		}
	}
}

// No name can add an element to the page.
func FuzzNamesAreText(f *testing.F) {
	f.Add(`</script><img src=x>`)
	f.Add("\"'><!-- \u2028 %s {{.}} \xff")
	page := func(t *testing.T, name string) string {
		in := Input{
			Host: name, Made: time.Unix(0, 0).UTC(), Settings: api.Settings{Files: []string{name}, Text: name},
			Status: api.Status{Version: name, Alarms: []string{name}},
			Passes: []api.Pass{{ID: 1, Wake: name, Stop: &api.StopView{Pod: name, Reason: name, Signal: "memory.available", Kind: "hard"},
				Ranked: []api.RankedView{{Position: 1, Pod: name, QoS: name}, {Pod: name, Excluded: "x" + name}}}},
			Windows: []api.Window{{Pass: 1, Series: api.Series{At: []api.Duration{1}, Available: map[policy.Signal][]int64{policy.MemoryAvailable: {1}}}}},
		}
		var out bytes.Buffer
		if err := Write(&out, &in); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, plain := page(t, name), page(t, "plain")
		for _, special := range []string{"<", ">", `"`} {
			if a, b := strings.Count(got, special), strings.Count(plain, special); a != b {
				t.Errorf("%d of %s, want %d", a, special, b)
			}
		}
	})
}

// The marks of a stop are relative to its start.
func TestStopMarks(t *testing.T) {
	p := api.Pass{
		Stop: &api.StopView{Signal: "memory.available", Kind: "soft"},
		Met:  []api.MetView{{Threshold: "memory.available:hard", For: api.Duration(time.Second)}, {Threshold: "memory.available:soft", For: api.Duration(30 * time.Second)}},
	}
	effect := api.StopView{Expected: 2, Result: &api.StopResult{Emptied: true, EmptiedIn: api.Duration(20 * time.Millisecond), Freed: 1, SettledIn: api.Duration(time.Second)}}
	for _, c := range []struct {
		name string
		edit func()
		want string
	}{
		{"helped", func() {}, "hard crossing -1.000 s · soft crossing -30.000 s · stop +0.000 s · dead +0.020 s · relief +1.000 s"},
		{"did not help", func() { effect.Result.Freed = 0 }, "hard crossing -1.000 s · soft crossing -30.000 s · stop +0.000 s · dead +0.020 s"},
		{"ended without the service", func() { effect.Result.EmptiedIn = 0 }, "hard crossing -1.000 s · soft crossing -30.000 s · stop +0.000 s"},
		{"did not die", func() { effect.Result.Emptied = false }, "hard crossing -1.000 s · soft crossing -30.000 s · stop +0.000 s"},
		{"soft alone", func() { p.Met = p.Met[1:] }, "soft crossing -30.000 s · stop +0.000 s"},
		{"at once", func() { p.Met[0].For = 0 }, "soft crossing +0.000 s · stop +0.000 s"},
		{"observe mode", func() { p.Stop.DryRun = true }, "soft crossing +0.000 s · would stop +0.000 s"},
	} {
		c.edit()
		one := plot{Marks: stopMarks(&p, &effect, policy.MemoryAvailable)}
		if got := one.caption(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	other := plot{Marks: stopMarks(&p, nil, policy.AllocatableMemoryAvailable)}
	if got := other.caption(); got != "would stop +0.000 s" {
		t.Errorf("a signal that was not crossed: %s", got)
	}
}

// The table that replaces a plot has a row for each change, and for the last sample.
func TestSampleRows(t *testing.T) {
	s := api.Series{At: []api.Duration{0, 1e9, 2e9, 3e9, 4e9}, Available: map[policy.Signal][]int64{policy.PIDAvailable: {7, 7, 5, 5, 5}}}
	var got []string
	for _, row := range sampleRows(policy.PIDAvailable, &s, 2*time.Second, 60) {
		got = append(got, strings.Join(row, " "))
	}
	if want := "-2.000 s 7, +0.000 s 5, +2.000 s 5"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}
