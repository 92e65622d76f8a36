package simulate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
)

// TestSimulateI1 replays the kubelet's own scenario of soft and hard memory pressure. Hard stops have a
// grace period of 0, where the kubelet has 1 s. The kubelet has no budget, and criguard's holds none of these stops back.
func TestSimulateI1(t *testing.T) {
	dir := filepath.Join("testdata", "traces")
	cfg, err := config.Load(filepath.Join(dir, "i1.toml"))
	if err != nil {
		t.Fatal(err)
	}
	trace, err := os.ReadFile(filepath.Join(dir, "i1.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(dir, "i1.want.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, opt := range []Options{{}, {NoBudget: true}, {}} { // the same trace gives the same output, byte for byte
		var got bytes.Buffer
		if _, err := Run(context.Background(), cfg, bytes.NewReader(trace), &got, opt); err != nil {
			t.Fatal(err)
		}
		if got.String() != string(want) {
			t.Errorf("%+v: got\n%s\nwant\n%s", opt, got.String(), want)
		}
	}
}

// simulate runs the lines of a trace with a configuration in TOML.
func simulate(t *testing.T, conf string, opt Options, lines ...string) []Pass {
	t.Helper()
	cfg, err := config.Parse("test", strings.NewReader(conf))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := Run(context.Background(), cfg, strings.NewReader(strings.Join(lines, "\n")), &out, opt); err != nil {
		t.Fatal(err)
	}
	var passes []Pass
	for line := range strings.Lines(out.String()) {
		var p Pass
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		passes = append(passes, p)
	}
	if len(passes) != len(lines) {
		t.Fatalf("%d lines gave %d passes", len(lines), len(passes))
	}
	return passes
}

func stopOf(p Pass) string {
	if p.Stop == nil {
		return ""
	}
	return p.Stop.Pod + " " + p.Stop.Kind
}

const diskConfig = `
[eviction.hard]
"memory.available" = "0%"
"nodefs.available" = "1Gi"
"imagefs.available" = "0%"
[eviction.minimum_reclaim]
"nodefs.available" = "1Gi"
`

const diskPods = `"pods":[{"name":"d/a","uid":"a","qos":"BestEffort","disk_usage":{"rootfs":"100Mi","logs":"2Gi","volumes":0}},` +
	`{"name":"d/b","uid":"b","qos":"BestEffort","disk_usage":{"rootfs":"3Gi","logs":"1Mi","volumes":0}}]`

func diskLine(at, available, more string) string {
	return fmt.Sprintf(`{"at":%q,"signals":{"nodefs.available":{"available":%q,"capacity":"20Gi"}},%s%s}`, at, available, diskPods, more)
}

func TestSimulateDisk(t *testing.T) {
	for _, tc := range []struct {
		name, layout, after, steps, stop string
	}{
		{"single, relieved", "single", "2Gi", "containers sandboxes logs images", ""},
		{"single, above the threshold but below the minimum reclaim", "single", "1500Mi", "containers sandboxes logs images", "d/b hard"},
		{"single, not relieved", "single", "600Mi", "containers sandboxes logs images", "d/b hard"},
		{"dedicated imagefs: logs and volumes rank", "dedicated-imagefs", "600Mi", "containers sandboxes logs", "d/a hard"},
		{"split: all but images", "split", "600Mi", "containers sandboxes logs", "d/b hard"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := simulate(t, diskConfig, Options{}, diskLine("0s", "500Mi",
				fmt.Sprintf(`,"layout":%q,"after_reclaim":{"nodefs.available":{"available":%q}}`, tc.layout, tc.after)))
			if got := strings.Join(p[0].Reclaimed, " "); got != tc.steps {
				t.Errorf("reclaimed %q, want %q", got, tc.steps)
			}
			if got := stopOf(p[0]); got != tc.stop {
				t.Errorf("stopped %q, want %q", got, tc.stop)
			}
			if !p[0].Conditions.Has(policy.DiskPressure) || p[0].Admit["Guaranteed"] {
				t.Errorf("conditions %v, admit %v", p[0].Conditions, p[0].Admit)
			}
		})
	}
}

// Each field of an image decides whether its space can be reclaimed.
func TestSimulateImages(t *testing.T) {
	for field, relieves := range map[string]bool{
		``: true, `,"pinned":true`: false, `,"in_use":true`: false, `,"repullable":false`: false, `,"age":"5m"`: false, `,"age":"48h"`: true,
		`,"name":"registry.example/kept:1"`: false, `,"name":"registry.example.org/other:1"`: true,
	} {
		t.Run(field, func(t *testing.T) {
			p := simulate(t, diskConfig+"[images]\nkeep = ['registry.example/*']\n", Options{},
				diskLine("0s", "500Mi", `,"images":[{"id":"sha256:1","size":"2Gi"`+field+`}]`))
			if got := p[0].Stop == nil; got != relieves {
				t.Errorf("relieved is %v, want %v (stop %q)", got, relieves, stopOf(p[0]))
			}
		})
	}
}

const memoryConfig = `
[eviction.hard]
"memory.available" = "1Gi"
`

func memoryLine(at, available, more string) string {
	return fmt.Sprintf(`{"at":%q,"signals":{"memory.available":{"available":%q,"capacity":"8Gi"}}%s}`, at, available, more)
}

const memoryPods = `,"pods":[{"name":"d/a","uid":"a","qos":"BestEffort","memory_usage":"700Mi"},{"name":"d/b","uid":"b","qos":"BestEffort","memory_usage":"600Mi"},` +
	`{"name":"d/c","uid":"c","qos":"BestEffort","memory_usage":"500Mi"},{"name":"d/d","uid":"d","qos":"BestEffort","memory_usage":"400Mi"}]`

// Three stops that move nothing open the breaker.
func TestSimulateBreaker(t *testing.T) {
	lines := []string{memoryLine("0s", "900Mi", memoryPods)}
	for _, at := range []string{"20s", "40s", "60s", "90s"} {
		lines = append(lines, memoryLine(at, "900Mi", ""))
	}
	p := simulate(t, memoryConfig, Options{}, lines...)
	if p[2].Stop == nil || p[3].Held != api.HeldBreaker || p[4].Held != api.HeldBreaker {
		t.Errorf("third: %q; then held by %q and %q", stopOf(p[2]), p[3].Held, p[4].Held)
	}
}

// The budget allows three stops at once, then one every 30 s. Without a budget, there is no such limit.
func TestSimulateBudget(t *testing.T) {
	lines := []string{memoryLine("0s", "3000Mi", memoryPods)}
	for at, available := range map[int]string{1: "3700Mi", 2: "4300Mi", 3: "4800Mi", 33: "4800Mi"} {
		lines = append(lines, memoryLine(fmt.Sprintf("%ds", at), available, ""))
	}
	slices.SortFunc(lines[1:], func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	const config = "[eviction.hard]\n\"memory.available\" = \"5000Mi\"\n"
	p := simulate(t, config, Options{}, lines...)
	if p[2].Stop == nil || p[3].Held != api.HeldBudget || stopOf(p[4]) != "d/d hard" {
		t.Errorf("third: %q; then held by %q, then %q", stopOf(p[2]), p[3].Held, stopOf(p[4]))
	}
	p = simulate(t, config, Options{NoBudget: true}, lines...)
	if stopOf(p[3]) != "d/d hard" || p[4].Held != api.HeldOutside {
		t.Errorf("without a budget: fourth: %q; then held by %q", stopOf(p[3]), p[4].Held)
	}
}

// If no pod fills a disk, the breaker limits the number of stops for it, however many signals measure the
// disk. Another signal that becomes met later allows no further stops.
func TestSimulateBreakerOfADisk(t *testing.T) {
	var pods []string
	for i := range 10 {
		pods = append(pods, fmt.Sprintf(`{"name":"d/%d","uid":"%d","disk_usage":{"rootfs":"500Mi","logs":"500Mi"}}`, i, i))
	}
	line := func(minute int, available string) string {
		fs := fmt.Sprintf(`{"available":%q,"capacity":"100Gi"}`, available)
		return fmt.Sprintf(`{"at":"%dm","signals":{"nodefs.available":%s,"imagefs.available":%[2]s,"containerfs.available":%[2]s}}`, minute, fs)
	}
	for layout, want := range map[string]int{
		"single":            3,
		"dedicated-imagefs": 6, // containerfs is imagefs
		"split":             3, // containerfs is nodefs, and a stop frees no images
		"separate":          6, // so it is with three devices
	} {
		t.Run(layout, func(t *testing.T) {
			lines := []string{fmt.Sprintf(`{"at":"0s","layout":%q,"pods":[%s]}`, layout, strings.Join(pods, ","))}
			for m := 1; m <= 20; m++ {
				available := "12Gi" // only imagefs is met
				if m > 10 {
					available = "8Gi"
				}
				lines = append(lines, line(m, available))
			}
			stops := 0
			for _, p := range simulate(t, "[eviction.hard]\n\"memory.available\" = \"0%\"\n", Options{}, lines...) {
				if p.Stop != nil {
					stops++
				}
			}
			if stops != want {
				t.Errorf("%d stops, want %d", stops, want)
			}
		})
	}
}

// A workload that comes back while the pressure lasts is stopped again: at a hard threshold at once and
// without a budget, and at a soft one at growing intervals.
func TestSimulateComesBack(t *testing.T) {
	pod := `,"pods":[{"name":"d/a","uid":"a","qos":"BestEffort","memory_usage":"7Gi","created":"-1m"}]`
	var lines []string
	for i := range 90 {
		lines = append(lines, memoryLine(fmt.Sprintf("%ds", i), "500Mi", pod))
	}
	stops := func(config, held string) (at []int) {
		for i, p := range simulate(t, config, Options{}, lines...) {
			if p.Stop != nil {
				at = append(at, i)
			} else if i > 0 && p.Held != held {
				t.Errorf("second %d: held by %q", i, p.Held)
			}
		}
		return at
	}
	if at := stops(memoryConfig, ""); len(at) != len(lines) {
		t.Errorf("hard: stopped at %v, want every second", at)
	}
	soft := "[eviction.hard]\n\"memory.available\" = \"0%\"\n[eviction.soft]\n\"memory.available\" = \"1Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"1s\"\n"
	if at := stops(soft, api.HeldBackoff); fmt.Sprint(at) != "[1 11 31 71]" {
		t.Errorf("soft: stopped at %v, want 10, 20 and 40 s apart", at)
	}
	for i, p := range simulate(t, memoryConfig+"[budget]\nhard.burst = 1\nsoft.burst = 1\n", Options{}, lines...) {
		if stopOf(p) != "d/a hard" {
			t.Errorf("second %d: stopped %q, held by %q", i, stopOf(p), p.Held)
		}
	}
}

// A bad line gives an error with its number.
func TestSimulateBadLines(t *testing.T) {
	good := `{"at":"1s"}`
	for _, bad := range []string{
		`nonsense`, `{}`, `{"at":"-1s"}`, `{"at":1}`, `{"at":"0s"}`, `{"at":"2s","nonsense":1}`, `{"at":"2s"} {"at":"3s"}`,
		`{"at":"2s","signals":{"memory":{"available":1}}}`, `{"at":"2s","signals":{"memory.available":{"available":"10%"}}}`,
		`{"at":"2s","signals":{"memory.available":{"available":-1}}}`, `{"at":"2s","pods":[{}]}`,
		`{"at":"2s","pods":[{"name":"a"},{"name":"a"}]}`, `{"at":"2s","pods":[{"name":"a","qos":"Best"}]}`,
		`{"at":"2s","signals":{"memory.available":{"available":1}}}`, `{"at":"2s","signals":{"memory.available":{"capacity":1}}}`,
		`{"at":"2s","pods":[{"name":"a","uid":"1"},{"name":"b","uid":"1"}]}`,
		`{"at":"2s","layout":"double"}`, `{"at":"2s","images":[{}]}`, `{"at":"2s","pods":[{"name":"a","pids":-1}]}`,
	} {
		_, err := Run(context.Background(), config.Default(), strings.NewReader(good+"\n\n"+bad+"\n"), &bytes.Buffer{}, Options{})
		if err == nil || !strings.Contains(err.Error(), "trace line 3: ") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

// FuzzSimulate runs whole passes on arbitrary input. Run must return an error or write one value per line,
// must never panic, and must never stop a protected pod.
func FuzzSimulate(f *testing.F) {
	trace, err := os.ReadFile(filepath.Join("testdata", "traces", "i1.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(trace)
	f.Add([]byte(diskLine("0s", "500Mi", `,"images":[{"id":"1","size":1,"age":"5m"}],"layout":"split"`)))
	f.Add([]byte(memoryLine("0s", "1", `,"pods":[{"name":"a/b","protected":true,"memory_usage":9}]`)))
	f.Add([]byte(memoryLine("0s", "1", `,"recorded":true,"pods":[{"name":"a/b","uid":"1","memory_usage":9}]`) + "\n" +
		memoryLine("1s", "1", `,"ended_pods":["1"],"changed_pods":[{"name":"a/c","memory_usage":9}]`)))
	cfg := config.Default()
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		_, err := Run(context.Background(), cfg, bytes.NewReader(data), &out, Options{})
		var again bytes.Buffer
		if _, err2 := Run(context.Background(), cfg, bytes.NewReader(data), &again, Options{}); (err == nil) != (err2 == nil) || out.String() != again.String() {
			t.Fatal("the same trace came out differently")
		}
		if err == nil && bytes.Contains(data, []byte(`"protected":true`)) && !bytes.Contains(data, []byte(`"protected":false`)) {
			if strings.Count(string(data), `"name"`) == 1 && strings.Contains(out.String(), `"stop":{`) {
				t.Fatalf("a protected pod was stopped: %s", out.String())
			}
		}
	})
}

// While memory is short and swap fills, pods are ranked for swap by their memory and swap in a trace. Otherwise, none is
// stopped.
func TestSimulateSwap(t *testing.T) {
	begins := `{"at":"0s","signals":{"swap.available":{"available":"2Gi","capacity":"4Gi"},"meminfo.available":{"available":"2Gi","capacity":"4Gi"}}}`
	line := func(memory, web, leaky string) string {
		return `{"at":"1s","signals":{"swap.available":{"available":"100Mi","capacity":"4Gi"},"meminfo.available":{"available":"` + memory +
			`","capacity":"4Gi"}},"pods":[{"name":"d/web","memory_usage":"1Gi"` + web + `},{"name":"d/leaky",` + leaky + `}]}`
	}
	for _, c := range []struct {
		name, line, stopped, held string
	}{
		{"the larger pod is in swap", line("200Mi", `,"swap_usage":"0"`, `"memory_usage":"50Mi","swap_usage":"3Gi"`), "d/leaky hard", ""},
		{"it is protected", line("200Mi", `,"swap_usage":"2Gi","protected":true`, `"memory_usage":"10Mi","swap_usage":"0"`), "", api.HeldProtected},
		{"swap is not known", line("200Mi", "", `"memory_usage":"3Gi"`), "d/leaky hard", ""},
		{"memory is not short", line("1Gi", "", `"memory_usage":"50Mi"`), "", api.HeldStallFloor},
	} {
		got := simulate(t, swapHard, Options{}, begins, c.line)[1]
		if stopOf(got) != c.stopped || got.Held != c.held {
			t.Errorf("%s: stopped %+v, held by %q", c.name, got.Stop, got.Held)
		}
	}
	got := simulate(t, swapHard, Options{}, line("200Mi", "", `"memory_usage":"50Mi"`), strings.Replace(line("200Mi", "", `"memory_usage":"50Mi"`), "1s", "2s", 1))
	if got[1].Stop != nil || got[1].Held != policy.HeldRecovers {
		t.Errorf("nothing fills it: stopped %+v, held by %q", got[1].Stop, got[1].Held)
	}
}

const swapHard = "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"swap.available\" = \"1Gi\"\n"
