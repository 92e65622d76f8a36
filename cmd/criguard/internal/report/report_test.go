package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

// What is of uPlot is what was published, and none of it ends its element.
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

// Whatever a name is, it adds no element to the page.
func FuzzNamesAreText(f *testing.F) {
	f.Add(`</script><img src=x>`)
	f.Add("\"'><!-- \u2028 %s {{.}} \xff")
	page := func(t *testing.T, name string) string {
		in := Input{
			Host: name, Made: time.Unix(0, 0).UTC(), Settings: guard.Settings{Files: []string{name}, Text: name},
			Status: guard.Status{Version: name, Conditions: []string{name}, Alarms: []string{name}},
			Passes: []guard.Pass{{ID: 1, Wake: name, Stop: &guard.StopView{Pod: name, Reason: name, Signal: "memory.available", Kind: "hard"},
				Ranked: []guard.RankedView{{Position: 1, Pod: name, QoS: name}, {Pod: name, Excluded: "x" + name}}}},
			Windows: []guard.Window{{Pass: 1, Series: guard.Series{At: []time.Duration{1}, Available: map[policy.Signal][]int64{policy.MemoryAvailable: {1}}}}},
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

// The moments of a stop are told from when it began.
func TestStopMarks(t *testing.T) {
	p := guard.Pass{
		Stop: &guard.StopView{Signal: "memory.available", Kind: "soft"},
		Met:  []guard.MetView{{Threshold: "memory.available:hard", For: 1}, {Threshold: "memory.available:soft", For: 30 * time.Second}},
	}
	effect := guard.StopView{Result: &guard.StopResult{Emptied: true, EmptiedIn: 20 * time.Millisecond, Moved: true, SettledIn: time.Second}}
	for _, c := range []struct {
		name string
		edit func()
		want string
	}{
		{"helped", func() {}, "crossing -30.000 s · stop +0.000 s · dead +0.020 s · relief +1.000 s"},
		{"did not help", func() { effect.Result.Moved = false }, "crossing -30.000 s · stop +0.000 s · dead +0.020 s"},
		{"did not die", func() { effect.Result.Emptied = false }, "crossing -30.000 s · stop +0.000 s"},
		{"at once", func() { p.Met[1].For = 0 }, "crossing +0.000 s · stop +0.000 s"},
		{"observe mode", func() { p.Stop.DryRun = true }, "crossing +0.000 s · would stop +0.000 s"},
	} {
		c.edit()
		one := plot{Marks: stopMarks(&p, &effect)}
		if got := one.caption(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
