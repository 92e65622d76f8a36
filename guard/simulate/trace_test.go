package simulate

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
)

// traceError runs a trace with the default configuration and returns the error.
func traceError(lines ...string) error {
	_, err := Run(context.Background(), config.Default(), strings.NewReader(strings.Join(lines, "\n")), &bytes.Buffer{}, Options{})
	return err
}

// A signal needs its capacity, from its line or an earlier one.
func TestSignalWithoutCapacity(t *testing.T) {
	if err := traceError(`{"at":"0s"}`, `{"at":"1s","signals":{"memory.available":{"available":"1Gi"}}}`); err == nil ||
		err.Error() != "trace line 2: signal memory.available: capacity is missing" {
		t.Errorf("error %v", err)
	}
	if err := traceError(memoryLine("0s", "1Gi", ""), `{"at":"1s","signals":{"memory.available":{"available":"1Gi"}}}`); err != nil {
		t.Errorf("the capacity of an earlier line is kept: %v", err)
	}
}

// The error for a value of the wrong type names JSON's types, not Go's.
func TestValueOfTheWrongType(t *testing.T) {
	for line, want := range map[string]string{
		`[{"at":"0s"}]`:            "want an object, not the array",
		`"0s"`:                     "want an object, not the string",
		`{"at":"0s","signals":[]}`: "signals: want an object, not the array",
		`{"at":"0s","signals":{"memory.available":5}}`:     "signals.memory.available: want an object, not the number",
		`{"at":"0s","pods":{}}`:                            "pods: want an array, not the object",
		`{"at":"0s","pods":[5]}`:                           "pods.0: want an object, not the number",
		`{"at":"0s","pods":[{"name":5}]}`:                  "pods.0.name: want a string, not the number",
		`{"at":"0s","pods":[{"name":"a","priority":1.5}]}`: "pods.0.priority: want a whole number, not the number 1.5",
		`{"at":"0s","pods":[{"name":"a","static":"yes"}]}`: "pods.0.static: want true or false, not the string",
		`{"at":"0s","pods":[{"name":"a","labels":["b"]}]}`: "pods.0.labels: want an object, not the array",
		`{"at":"0s","began":"today"}`:                      `time "today": not like "2006-01-02T15:04:05Z"`,
	} {
		if err := traceError(line); err == nil || err.Error() != "trace line 1: "+want {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// Reclaiming frees every signal of the device.
func TestReclaimFreesEverySignal(t *testing.T) {
	const conf = "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"nodefs.available\" = \"1Gi\"\n\"imagefs.available\" = \"1Gi\"\n"
	line := `{"at":"0s","layout":%q,"signals":{"nodefs.available":{"available":"500Mi","capacity":"20Gi"},"imagefs.available":{"available":"500Mi","capacity":"20Gi"}},` +
		`"pods":[{"name":"d/a","disk_usage":{"rootfs":"3Gi","logs":"3Gi","volumes":0}}],"images":[{"id":"1","size":"30Gi"}]}`
	if p := simulate(t, conf, Options{}, fmt.Sprintf(line, "single"))[0]; p.Stop != nil {
		t.Errorf("single filesystem: images relieve both signals, but %s was stopped", stopOf(p))
	}
	if p := simulate(t, conf, Options{}, fmt.Sprintf(line, "dedicated-imagefs"))[0]; p.Stop == nil || p.Stop.Signal != "nodefs.available" {
		t.Errorf("dedicated imagefs: images do not relieve nodefs, stopped %q", stopOf(p))
	}
}

// A pod keeps its facts and its sandbox whether a line names it by its UID or by its name.
func TestPodByUIDOrName(t *testing.T) {
	full := `{"name":"d/a","uid":"1","priority":-5,"memory_usage":"2Gi"}`
	byName := `{"name":"d/a","priority":-5,"memory_usage":"2Gi"}`
	for name, pods := range map[string][2]string{
		"by name after the UID":    {full, `{"name":"d/a"}`},
		"by UID after the name":    {byName, `{"name":"d/a","uid":"1"}`},
		"by UID, with a new name":  {full, `{"name":"d/b","uid":"1"}`},
		"by both in the same line": {full, `{"name":"d/a","uid":"1"}`},
	} {
		line := func(at, available, pod string) string {
			return memoryLine(at, available, `,"pods":[`+pod+`,{"name":"d/other","memory_usage":"3Gi"}]`)
		}
		p := simulate(t, memoryConfig, Options{}, line("0s", "2Gi", pods[0]), line("20s", "500Mi", pods[1]))
		if p[1].Stop == nil || !strings.Contains(p[1].Stop.Reason, "priority=-5, over_by=2Gi") {
			t.Errorf("%s: stopped %+v", name, p[1].Stop)
		}
	}
	// Another pod of the same name is another pod: a StatefulSet names its pods again.
	p := simulate(t, memoryConfig, Options{}, memoryLine("0s", "2Gi", `,"pods":[`+full+`]`), memoryLine("20s", "500Mi", `,"pods":[{"name":"d/a","uid":"2"}]`))
	if p[1].Stop != nil || p[1].Held != api.HeldUnknown {
		t.Errorf("a new UID took over facts: stopped %q, held by %q", stopOf(p[1]), p[1].Held)
	}
	if err := traceError(`{"at":"0s","pods":[`+full+`]}`, `{"at":"1s","pods":[`+full+`,{"name":"d/a"}]}`); err == nil || !strings.Contains(err.Error(), "line 2: pods[1] 1: named twice") {
		t.Errorf("named by UID and by name in one line: error %v", err)
	}
}

// A pod's memory_file is page cache in active use, which a stop does not give back. By default it is 0.
func TestMemoryFileGivesNothingBack(t *testing.T) {
	pods := `,"pods":[{"name":"d/cache","priority":-5,"memory_usage":"1Gi","memory_file":"1020Mi"},{"name":"d/heap","memory_usage":"900Mi"%s}]`
	for file, want := range map[string]string{``: "d/heap hard", `,"memory_file":"800Mi"`: ""} {
		// 524 MiB lack, so 26.2 MiB help.
		if got := stopOf(simulate(t, memoryConfig, Options{}, memoryLine("0s", "500Mi", fmt.Sprintf(pods, file)))[0]); got != want {
			t.Errorf("%q: stopped %q, want %q", file, got, want)
		}
	}
}

// A pod's own ephemeral_storage_limit is enforced without any [[limit]].
func TestStorageLimitWithoutRule(t *testing.T) {
	line := `{"at":"0s","pods":[{"name":"d/a","ephemeral_storage_limit":"1Gi","disk_usage":{"rootfs":%q,"logs":0,"volumes":0}}]}`
	for used, want := range map[string]string{"1Gi": "", "1025Mi": "d/a limit"} {
		if got := stopOf(simulate(t, "", Options{}, fmt.Sprintf(line, used))[0]); got != want {
			t.Errorf("%s: stopped %q, want %q", used, got, want)
		}
	}
}

// A pod that comes back is in another sandbox. What it then uses beyond its limit is nothing that its last stop has left.
func TestLimitOfAPodThatComesBack(t *testing.T) {
	line := func(at, uses string) string {
		return `{"at":"` + at + `","pods":[{"name":"d/a","ephemeral_storage_limit":"1Gi","disk_usage":{"rootfs":"` + uses + `","logs":0,"volumes":0}}]}`
	}
	var stops []string
	for i, p := range simulate(t, "", Options{}, line("0s", "2Gi"), line("10s", "2Gi")) {
		if p.Stop != nil {
			stops = append(stops, fmt.Sprint(i, " ", stopOf(p)))
		}
	}
	if want := []string{"0 d/a limit", "1 d/a limit"}; !slices.Equal(stops, want) {
		t.Errorf("stopped %q, want %q", stops, want)
	}
}

// Growth and fill are sampled on every line, at 10 ms as well as at 1 s between lines, and also on lines
// on which nothing is met.
func TestSampledOnEveryLine(t *testing.T) {
	for _, step := range []int{10, 1000} { // milliseconds
		var lines []string
		for at := 0; at <= 4000; at += step {
			leaked := at / 10 * 3 // 300 MiB/s
			lines = append(lines, memoryLine(fmt.Sprintf("%dms", at), fmt.Sprintf("%dMi", 2200-leaked),
				fmt.Sprintf(`,"pods":[{"name":"d/low","priority":-5,"memory_usage":"2Gi"},{"name":"d/leak","priority":9,"memory_usage":"%dMi"}]`, 100+leaked)))
		}
		for i, p := range simulate(t, memoryConfig, Options{}, lines...) {
			if p.Stop == nil {
				continue
			}
			if n := p.Need; n.Culprit != "d/leak" || n.Fill != 300*mebi || n.OutsideFill != 0 || p.Stop.Pod != "d/leak" {
				t.Errorf("every %d ms: line %d stopped %s; %+v", step, i, p.Stop.Pod, *n)
			}
			break
		}
	}
}

// A sandbox comes back when the trace names a stopped pod again, and has grown by all that it uses since.
// The time of its creation on every line does not change that, and does not make another pod come back.
func TestComesBackWhenNamedAgain(t *testing.T) {
	pods := func(a, created string) string {
		return `,"pods":[{"name":"d/a","priority":9,"memory_usage":"` + a + `"` + created + `},{"name":"d/b","memory_usage":"3Gi"` + created + `}]`
	}
	for _, created := range []string{``, `,"created":"-1m"`} {
		p := simulate(t, "[rank]\nmemory = ['usage']\n"+memoryConfig, Options{},
			memoryLine("0s", "500Mi", pods("4Gi", created)),                                        // stops a
			memoryLine("20s", "900Mi", `,"pods":[{"name":"d/b","memory_usage":"3Gi"`+created+`}]`), // a is not named
			memoryLine("40s", "900Mi", pods("100Mi", created)),
			memoryLine("60s", "900Mi", pods("100Mi", created)),
		)
		if stopOf(p[0]) != "d/a hard" || stopOf(p[1]) != "d/b hard" {
			t.Errorf("%q: stopped %q, then %q", created, stopOf(p[0]), stopOf(p[1]))
		}
		// Both came back, and the larger one ranks first.
		if !strings.Contains(fmt.Sprint(p[2].Stop), "came back") || stopOf(p[2]) != "d/b hard" {
			t.Errorf("%q: named again: %+v", created, p[2].Stop)
		}
		if !strings.Contains(fmt.Sprint(p[3].Stop), "came back") {
			t.Errorf("%q: named again in a later line: %+v", created, p[3].Stop)
		}
	}
	// At 60 s, the sandbox of b is 0 s old, and its 3 GiB are its growth. That of a pod which was not listed and
	// not stopped before is unknown.
	p := simulate(t, memoryConfig, Options{},
		memoryLine("0s", "500Mi", pods("4Gi", "")), memoryLine("59s", "3Gi", `,"pods":[]`), memoryLine("60s", "900Mi", pods("2Gi", `,"created":"-1m"`)))
	if stopOf(p[0]) != "d/b hard" || p[2].Need == nil || p[2].Need.Culprit != "d/b" || stopOf(p[2]) != "d/b hard" {
		t.Errorf("the growth of a new sandbox: %q, %+v", stopOf(p[0]), p[2].Need)
	}
}
