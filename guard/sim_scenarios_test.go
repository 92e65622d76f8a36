package guard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The kubelet's own scenario of soft and hard memory pressure, with a grace
// period of 0 for hard stops where the kubelet has 1 s.
func TestSimulateI1(t *testing.T) {
	dir := filepath.Join("testdata", "traces")
	cfg, err := LoadConfig(filepath.Join(dir, "i1.toml"))
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
	for range 2 { // the same trace gives the same output, byte for byte
		var got bytes.Buffer
		if err := Simulate(context.Background(), cfg, bytes.NewReader(trace), &got, SimulateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got.String() != string(want) {
			t.Errorf("got\n%s\nwant\n%s", got.String(), want)
		}
	}
}

// simulate runs lines over a configuration given as TOML.
func simulate(t *testing.T, config string, opt SimulateOptions, lines ...string) []SimulatedPass {
	t.Helper()
	cfg, err := ParseConfig("test", strings.NewReader(config))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Simulate(context.Background(), cfg, strings.NewReader(strings.Join(lines, "\n")), &out, opt); err != nil {
		t.Fatal(err)
	}
	var passes []SimulatedPass
	for line := range strings.Lines(out.String()) {
		var p SimulatedPass
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

func stopOf(p SimulatedPass) string {
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
		{"dedicated imagefs: logs and volumes rank", "dedicated-imagefs", "600Mi", "logs", "d/a hard"},
		{"split: all but images", "split", "600Mi", "containers sandboxes logs", "d/b hard"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := simulate(t, diskConfig, SimulateOptions{}, diskLine("0s", "500Mi",
				fmt.Sprintf(`,"layout":%q,"after_reclaim":{"nodefs.available":{"available":%q}}`, tc.layout, tc.after)))
			if got := strings.Join(p[0].Reclaimed, " "); got != tc.steps {
				t.Errorf("reclaimed %q, want %q", got, tc.steps)
			}
			if got := stopOf(p[0]); got != tc.stop {
				t.Errorf("stopped %q, want %q", got, tc.stop)
			}
			if p[0].Conditions[0] != "DiskPressure" || p[0].Admit["Guaranteed"] {
				t.Errorf("conditions %v, admit %v", p[0].Conditions, p[0].Admit)
			}
		})
	}
}

// Each field of an image decides whether its space may be counted on.
func TestSimulateImages(t *testing.T) {
	for field, relieves := range map[string]bool{
		``: true, `,"pinned":true`: false, `,"in_use":true`: false, `,"repullable":false`: false, `,"age":"5m"`: false, `,"age":"48h"`: true,
		`,"name":"registry.example/kept:1"`: false, `,"name":"registry.example.org/other:1"`: true,
	} {
		t.Run(field, func(t *testing.T) {
			p := simulate(t, diskConfig+"[images]\nkeep = ['registry.example/*']\n", SimulateOptions{},
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

// Three stops at once, then one each 30 s; three that move nothing open the
// breaker; neither without a budget.
func TestSimulateRestraint(t *testing.T) {
	lines := []string{memoryLine("0s", "500Mi", memoryPods)}
	for _, at := range []string{"1s", "2s", "3s", "33s"} {
		lines = append(lines, memoryLine(at, "500Mi", ""))
	}
	t.Run("breaker", func(t *testing.T) {
		p := simulate(t, memoryConfig, SimulateOptions{}, lines...)
		if p[2].Stop == nil || p[3].Held != HeldBreaker || p[4].Held != HeldBreaker {
			t.Errorf("third: %q; then held by %q and %q", stopOf(p[2]), p[3].Held, p[4].Held)
		}
	})
	t.Run("budget", func(t *testing.T) {
		p := simulate(t, memoryConfig+"[budget]\nbreaker = 0\n", SimulateOptions{}, lines...)
		if p[2].Stop == nil || p[3].Held != HeldBudget || stopOf(p[4]) != "d/d hard" {
			t.Errorf("third: %q; then held by %q, then %q", stopOf(p[2]), p[3].Held, stopOf(p[4]))
		}
	})
	t.Run("neither", func(t *testing.T) {
		p := simulate(t, memoryConfig, SimulateOptions{NoBudget: true}, lines...)
		if stopOf(p[3]) != "d/d hard" || p[4].Held != HeldNoCandidate {
			t.Errorf("fourth: %q; then held by %q", stopOf(p[3]), p[4].Held)
		}
	})
}

// A disk that no pod fills costs as many pods as the breaker allows, however many signals
// are about it, and is not given up anew when a further one of them is met.
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
		"split":             3, // containerfs is nodefs, and nobody's stop gives images back
	} {
		t.Run(layout, func(t *testing.T) {
			lines := []string{fmt.Sprintf(`{"at":"0s","layout":%q,"pods":[%s]}`, layout, strings.Join(pods, ","))}
			for m := 1; m <= 20; m++ {
				available := "12Gi" // imagefs alone is met
				if m > 10 {
					available = "8Gi"
				}
				lines = append(lines, line(m, available))
			}
			stops := 0
			for _, p := range simulate(t, "[eviction.hard]\n\"memory.available\" = \"0%\"\n", SimulateOptions{}, lines...) {
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

// A workload that comes back while the pressure goes on is stopped again, further
// and further apart.
func TestSimulateHoldDown(t *testing.T) {
	pod := `,"pods":[{"name":"d/a","uid":"a","qos":"BestEffort","memory_usage":"7Gi"}]`
	var lines []string
	for i := range 90 {
		lines = append(lines, memoryLine(fmt.Sprintf("%ds", i), "500Mi", pod))
	}
	p := simulate(t, memoryConfig+"[budget]\nbreaker = 0\nhard = {burst = 100, every = \"1s\"}\nper_hour = 0\n", SimulateOptions{}, lines...)
	var stops []int
	for i := range p {
		if p[i].Stop != nil {
			stops = append(stops, i)
		} else if p[i].Held != HeldBackoff {
			t.Errorf("second %d: held by %q", i, p[i].Held)
		}
	}
	if fmt.Sprint(stops) != "[0 10 30 70]" {
		t.Errorf("stopped at %v, want 10, 20 and 40 s apart", stops)
	}
}

// A bad line is an error with its number.
func TestSimulateBadLines(t *testing.T) {
	good := `{"at":"1s"}`
	for _, bad := range []string{
		`nonsense`, `{}`, `{"at":"-1s"}`, `{"at":1}`, `{"at":"0s"}`, `{"at":"2s","nonsense":1}`, `{"at":"2s"} {"at":"3s"}`,
		`{"at":"2s","signals":{"memory":{"available":1}}}`, `{"at":"2s","signals":{"memory.available":{"available":"10%"}}}`,
		`{"at":"2s","signals":{"memory.available":{"available":-1}}}`, `{"at":"2s","pods":[{}]}`,
		`{"at":"2s","pods":[{"name":"a"},{"name":"a"}]}`, `{"at":"2s","pods":[{"name":"a","qos":"Best"}]}`,
		`{"at":"2s","layout":"double"}`, `{"at":"2s","images":[{}]}`, `{"at":"2s","pods":[{"name":"a","pids":-1}]}`,
	} {
		err := Simulate(context.Background(), DefaultConfig(), strings.NewReader(good+"\n\n"+bad+"\n"), &bytes.Buffer{}, SimulateOptions{})
		if err == nil || !strings.Contains(err.Error(), "trace line 3: ") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

// FuzzSimulate feeds whatever to the whole pass: an error or one value per line,
// never a panic, never a protected victim.
func FuzzSimulate(f *testing.F) {
	trace, err := os.ReadFile(filepath.Join("testdata", "traces", "i1.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(trace)
	f.Add([]byte(diskLine("0s", "500Mi", `,"images":[{"id":"1","size":1,"age":"5m"}],"layout":"split"`)))
	f.Add([]byte(memoryLine("0s", "1", `,"pods":[{"name":"a/b","protected":true,"memory_usage":9}]`)))
	cfg := DefaultConfig()
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		err := Simulate(context.Background(), cfg, bytes.NewReader(data), &out, SimulateOptions{})
		var again bytes.Buffer
		if err2 := Simulate(context.Background(), cfg, bytes.NewReader(data), &again, SimulateOptions{}); (err == nil) != (err2 == nil) || out.String() != again.String() {
			t.Fatal("the same trace came out differently")
		}
		if err == nil && bytes.Contains(data, []byte(`"protected":true`)) && !bytes.Contains(data, []byte(`"protected":false`)) {
			if strings.Count(string(data), `"name"`) == 1 && strings.Contains(out.String(), `"stop":{`) {
				t.Fatalf("a protected pod was stopped: %s", out.String())
			}
		}
	})
}
