package report_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// hostile are names that would act as markup or script, or break out of it.
var hostile = []string{
	`</script><script>document.title="owned"</script>`, `<img src=x onerror=document.title="owned">`, `"><svg/onload=document.title='owned'>`,
	`]]><!--`, "a\u2028b\u202ec", "\x1b[31mred\nnext", `{{.}}`, `%s%d%!`, strings.Repeat("long", 64),
}

// quietConfig is for a node without a runtime that meets no threshold.
const quietConfig = `mode = "observe"
[runtime]
endpoint = "unix:///nonexistent/cri.sock"
[eviction.hard]
"memory.available" = "1"
"nodefs.available" = "0%"
"nodefs.inodesFree" = "0%"
"imagefs.available" = "0%"
"imagefs.inodesFree" = "0%"
"pid.available" = "0%"
`

// leave writes a history with one stop for each name, and the signals around all but the first.
func leave(t *testing.T, dir string, names []string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, "stops"), 0o755); err != nil {
		t.Fatal(err)
	}
	const gib = 1 << 30
	var lines strings.Builder
	for i, name := range names {
		id, when := uint64(2*i+1), time.Now().Add(time.Duration(i-len(names))*time.Hour)
		at := time.Duration(i+1) * time.Hour
		stop := api.StopView{
			Pass: id, Pod: "default/" + name, Sandbox: fmt.Sprint("s", i), Signal: "memory.available", Kind: "hard",
			Reason: "ranks first: " + name, Available: gib / 2, Expected: gib,
		}
		ranked := []api.RankedView{
			{Position: 1, Pod: stop.Pod, QoS: "BestEffort", Known: true, Usage: gib, Frees: gib, Keys: []policy.KeyValue{{Key: policy.KeyOverRequest, Value: 1}}},
			{Position: 2, Pod: "default/b", QoS: name, Known: true, Keys: []policy.KeyValue{{Key: policy.KeyOverRequest}}},
			{Pod: "kube-system/c", Excluded: name},
		}
		lines.WriteString(jsonLine(t, api.Pass{
			ID: id, Time: when, At: api.Duration(at), Wake: name, Stop: &stop, Ranked: ranked,
			Met: []api.MetView{{Threshold: "memory.available:hard", Signal: policy.MemoryAvailable, Available: gib / 2, Target: gib, For: api.Duration(5 * time.Second), Due: true}},
		}))
		settled := stop
		settled.Result = &api.StopResult{Emptied: true, EmptiedIn: api.Duration(2 * time.Second), Method: "direct", Freed: gib, Available: 2 * gib, SettledIn: api.Duration(3 * time.Second), Errors: []string{name}}
		lines.WriteString(jsonLine(t, api.Pass{ID: id + 1, Time: when.Add(3 * time.Second), At: api.Duration(at + 3*time.Second), Wake: "timer", Settled: []api.StopView{settled}}))
		if i == 0 {
			continue
		}
		w := api.Window{Pass: id, Time: when, StopAt: api.Duration(at), Limits: []api.Limit{
			{Signal: policy.MemoryAvailable, Amount: gib}, {Signal: policy.MemoryAvailable, Kind: policy.Soft, Amount: gib + gib/100},
		}}
		w.Available = map[policy.Signal][]int64{}
		for s := -60; s <= 60; s++ {
			w.At = append(w.At, api.Duration(at+time.Duration(s)*time.Second))
			w.Available[policy.MemoryAvailable] = append(w.Available[policy.MemoryAvailable], int64(gib/2+s*s*gib/1000))
		}
		w.Available[policy.MemoryAvailable][50] = -1 // not read
		if err := os.WriteFile(filepath.Join(dir, "stops", fmt.Sprintf("stop-%d.json", id)), []byte(jsonLine(t, w)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "history.jsonl"), []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Names with markup or script are shown as text, even on a phone, in dark mode and in print.
func TestHostileNames(t *testing.T) {
	dir := t.TempDir()
	leave(t, dir, hostile)
	s := serve(t, dir, quietConfig)
	b := open(t, s.report())
	if got := ask[string](b, "document.title"); !strings.HasPrefix(got, "criguard on ") {
		t.Errorf("title %q", got)
	}
	if n := ask[int](b, `document.querySelectorAll("img, svg, iframe, object, embed, link, base, form, a").length`); n != 0 {
		t.Errorf("%d elements that the page does not have", n)
	}
	if n := ask[int](b, "document.scripts.length"); n != 3 {
		t.Errorf("%d scripts, want the data, the plots' and the page's", n)
	}
	names := ask[[]string](b, `[...document.querySelectorAll("article h3 .name")].map((e) => e.textContent)`)
	if len(names) != len(hostile) {
		t.Fatalf("%d stops, want %d", len(names), len(hostile))
	}
	for i, name := range names {
		if want := "default/" + strings.NewReplacer("\x1b", `\u001b`, "\u202e", `\u202e`, "\u2028", `\u2028`).Replace(hostile[len(hostile)-1-i]); name != want {
			t.Errorf("stop of %q, want %q", name, want)
		}
	}
	if n := ask[int](b, `[...document.querySelectorAll("article")].filter((e) => e.innerText.includes("not kept any more")).length`); n != 1 {
		t.Errorf("%d stops without signals, want 1", n)
	}
	drawn(b, len(hostile)-1)
	b.at(1200, 900)
	b.fits()
	b.readable()
	b.picture("wide")
	b.at(360, 740)
	b.fits()
	drawn(b, len(hostile)-1)
	b.picture("phone")
	b.media("screen", "dark")
	b.at(800, 900)
	drawn(b, len(hostile)-1)
	if got := ask[string](b, "getComputedStyle(document.body).backgroundColor"); got != "rgb(13, 17, 23)" {
		t.Errorf("the dark page's background is %s", got)
	}
	b.picture("dark")
	b.media("print", "dark")
	b.at(794, 1123) // A4
	b.fits()
	b.picture("print")
	b.quiet()

	for _, command := range [][]string{{"history", "--number", "0"}, {"explain"}, {"explain", "11"}} {
		if told := s.ask(0, command...); strings.ContainsAny(told, "\x1b\u202e") {
			t.Errorf("%v lets control characters through: %q", command, told)
		}
	}
	if told := s.ask(2, "explain", "999"); !strings.Contains(told, fmt.Sprintf("there are passes 1 to %d", 2*len(hostile))) {
		t.Errorf("an unknown pass: %s", told)
	}
	if told := s.ask(2, "history", "--since", "yesterday"); !strings.Contains(told, "want a duration above 0, as 1h30m or 2d, or a time") {
		t.Errorf("a bad --since: %s", told)
	}
	if page := string(s.report("--since", "2h30m")); strings.Count(page, "<article") != 2 {
		t.Errorf("since 2h30m: %d stops, want 2", strings.Count(page, "<article"))
	}
}

// drawn checks that the first plots show their line, threshold and marks.
func drawn(b *tab, plots int) {
	b.Helper()
	for _, ink := range []string{"--line", "--limit", "--mark"} {
		all := b.inked(ink)
		if len(all) <= plots {
			b.Fatalf("%d plots, want those of %d stops and of now", len(all), plots)
		}
		for i, n := range all[:plots] {
			if n < 100 {
				b.Errorf("plot %d has %d pixels of %s", i, n, ink)
			}
		}
	}
}

// A node without stops has a page, too, and it is readable without scripts.
func TestNoStops(t *testing.T) {
	s := serve(t, t.TempDir(), quietConfig)
	page := s.report()
	b := open(t, page)
	if text := ask[string](b, "document.body.innerText"); !strings.Contains(text, "Nothing was stopped in that time.") ||
		!strings.Contains(text, "pid.available") || !strings.Contains(text, `mode = "observe"`) {
		t.Errorf("the page says %q", text)
	}
	b.quiet()

	b = open(t, page, scripts(false), size(360, 740))
	scripts(true)(b) // needed for the queries; the page's own scripts have not run
	if ask[bool](b, `"plots" in document.documentElement.dataset`) {
		t.Error("the page's scripts were run")
	}
	if text := ask[string](b, "document.body.innerText"); !strings.Contains(text, "Plots need JavaScript") || !strings.Contains(text, "pid.available") {
		t.Errorf("without scripts the page says %q", text)
	}
	b.fits()
	b.picture("scriptless")
}
