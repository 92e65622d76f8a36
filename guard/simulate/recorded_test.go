package simulate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/api"
)

// On a recorded node, a pod that the simulation stopped keeps running. The simulation does not stop it again and
// counts what it uses as available, until it ends there. When it starts again, it came back.
func TestRecordedPodIsStoppedOnce(t *testing.T) {
	lines := func(first string) []Pass {
		return simulate(t, memoryConfig, Options{},
			memoryLine("0s", "2Gi", `,"pods":[{"name":"d/a","uid":"1","memory_usage":"1Gi"},{"name":"d/b","uid":"2","memory_usage":"3Gi"}]`+first),
			memoryLine("20s", "500Mi", `,"changed_pods":[{"uid":"2","memory_usage":"4Gi"}]`), // stops b
			memoryLine("21s", "400Mi", `,"changed_pods":[{"uid":"2","memory_usage":"4100Mi"}]`),
			memoryLine("25s", "400Mi", ""),
			memoryLine("30s", "3Gi", `,"ended_pods":["2"]`),
			memoryLine("40s", "500Mi", `,"changed_pods":[{"name":"d/b","uid":"2","created":"35s","memory_usage":"3Gi"}]`),
		)
	}
	p := lines(`,"recorded":true`)
	if stopOf(p[1]) != "d/b hard" || p[2].Stop != nil || p[3].Stop != nil || len(p[2].Met)+len(p[3].Met)+len(p[4].Met) > 0 {
		t.Errorf("stopped %q, %q, %q; met %v, %v, %v", stopOf(p[1]), stopOf(p[2]), stopOf(p[3]), p[2].Met, p[3].Met, p[4].Met)
	}
	if stopOf(p[5]) != "d/b hard" || !strings.Contains(p[5].Stop.Reason, "grew by 3Gi/s") {
		t.Errorf("after it started again: %+v", p[5].Stop)
	}
	// In a trace that is written by hand, the signals are what they are, and to name a pod starts it.
	if p := lines(""); stopOf(p[2]) != "d/b hard" {
		t.Errorf("not recorded: stopped %q", stopOf(p[2]))
	}
}

// On a recorded node, an image that the simulation removed stays on the disk. The simulation counts its size as
// available until the node has removed it, too, or a container has it pulled again.
func TestRecordedImageIsRemovedOnce(t *testing.T) {
	const conf = "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"nodefs.available\" = \"1Gi\"\n\"imagefs.available\" = \"0%\"\n"
	first := `,"pods":[{"name":"d/a","uid":"a","disk_usage":{"rootfs":"3Gi","logs":0,"volumes":0}}]`
	line := func(at, available, more string) string {
		return fmt.Sprintf(`{"at":%q,"layout":"single","signals":{"nodefs.available":{"available":%q,"capacity":"20Gi"}}%s}`, at, available, more)
	}
	images := func(used bool) string {
		return fmt.Sprintf(`,"images":[{"id":"1","size":"5Gi","in_use":%t},{"id":"2","size":"1Gi","in_use":true}]`, used)
	}
	for name, c := range map[string]struct {
		recorded, last, want string
	}{
		"kept":                      {`,"recorded":true`, line("20s", "300Mi", ""), "[]"},
		"listed again":              {`,"recorded":true`, line("20s", "300Mi", images(false)), "[]"},
		"used up":                   {`,"recorded":true`, line("20s", "0", `,"changed_pods":[{"uid":"a","disk_usage":{"rootfs":"4Gi","logs":0,"volumes":0}}]`), "[]"},
		"removed there, too":        {`,"recorded":true`, line("20s", "300Mi", `,"images":[{"id":"2","size":"1Gi","in_use":true}]`), "[d/a]"},
		"pulled again":              {`,"recorded":true`, line("20s", "300Mi", images(true)), "[d/a]"},
		"with after_reclaim":        {`,"recorded":true,"after_reclaim":{"nodefs.available":{"available":"2Gi"}}`, line("20s", "300Mi", ""), "[]"},
		"of a trace by hand, named": {"", line("20s", "300Mi", ""), "[d/a]"},
	} {
		p := simulate(t, conf, Options{}, line("0s", "500Mi", first+images(false)+c.recorded), `{"at":"1s"}`, c.last)
		if got := fmt.Sprint(stopsOf(p)); got != c.want || !slices.Contains(p[0].Reclaimed, "images") {
			t.Errorf("%s: stopped %s, want %s", name, got, c.want)
		}
	}
}

// When a recorded pod that the simulation stopped has ended, its files are still being deleted for a while: the simulation does
// not report that the disk is used outside the pods.
func TestRecordedPodIsDeletedLate(t *testing.T) {
	const conf = "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"nodefs.available\" = \"1Gi\"\n\"imagefs.available\" = \"0%\"\n"
	line := func(at, available, more string) string {
		return fmt.Sprintf(`{"at":%q,"layout":"single","signals":{"nodefs.available":{"available":%q,"capacity":"20Gi"}}%s}`, at, available, more)
	}
	lines := func(recorded string, last ...string) []Pass {
		return simulate(t, conf, Options{}, append([]string{
			line("0s", "2Gi", `,"pods":[{"name":"d/a","uid":"1","disk_usage":{"rootfs":"3Gi","logs":0,"volumes":0}},{"name":"d/b","uid":"2","disk_usage":{"rootfs":"100Mi","logs":0,"volumes":0}}]`+recorded),
			line("10s", "500Mi", ""), // stops a
			line("12s", "300Mi", `,"ended_pods":["1"]`),
		}, last...)...)
	}
	const recorded = `,"recorded":true`
	p := lines(recorded, line("13s", "300Mi", ""), line("14s", "1800Mi", ""), line("15s", "3200Mi", ""), line("16s", "3200Mi", ""))
	if stopOf(p[1]) != "d/a hard" {
		t.Fatalf("stopped %q", stopOf(p[1]))
	}
	for _, p := range p[2:] {
		if len(p.Met) > 0 || p.Held != "" || p.Stop != nil {
			t.Errorf("at %s: met %v, held by %q", p.At, p.Met, p.Held)
		}
	}
	// What has come back does not count again when it is used again.
	if p := lines(recorded, line("13s", "3600Mi", ""), line("14s", "300Mi", "")); len(p[3].Met) > 0 || len(p[4].Met) == 0 {
		t.Errorf("used again: met %v, %v", p[3].Met, p[4].Met)
	}
	// Nor does what came back before the recorder noticed the end.
	p = simulate(t, conf, Options{},
		line("0s", "2Gi", `,"pods":[{"name":"d/a","uid":"1","disk_usage":{"rootfs":"3Gi","logs":0,"volumes":0}}]`+recorded),
		line("10s", "500Mi", ""), line("11s", "300Mi", ""), line("12s", "3500Mi", ""), line("13s", "3500Mi", `,"ended_pods":["1"]`), line("14s", "300Mi", ""))
	if stopOf(p[1]) != "d/a hard" || len(p[2].Met)+len(p[3].Met)+len(p[4].Met) > 0 || len(p[5].Met) == 0 {
		t.Errorf("deleted before: stopped %q, met %v, %v, %v, %v", stopOf(p[1]), p[2].Met, p[3].Met, p[4].Met, p[5].Met)
	}
	// What does not come back is used outside the pods after a while.
	if p := lines(recorded, line("41s", "300Mi", ""), line("42s", "300Mi", "")); len(p[3].Met) > 0 || len(p[4].Met) == 0 {
		t.Errorf("not deleted: met %v, %v", p[3].Met, p[4].Met)
	}
	// In a trace that is written by hand, the signals are what they are.
	if p := lines("", line("13s", "300Mi", "")); len(p[3].Met) == 0 {
		t.Error("not recorded: the threshold is not met")
	}
}

// A signal without a capacity is one that is not read: nothing is stopped for it. `record` writes it like that.
func TestRecordedSignalEnds(t *testing.T) {
	p := simulate(t, memoryConfig, Options{},
		memoryLine("0s", "500Mi", `,"recorded":true,"pods":[]`),
		`{"at":"1s","signals":{"memory.available":{"available":0,"capacity":0}},"changed_pods":[{"name":"d/a","uid":"1","memory_usage":"3Gi"}]}`,
		memoryLine("2s", "500Mi", ""))
	if len(p[0].Met) != 1 || len(p[1].Met) > 0 || p[1].Stop != nil || stopOf(p[2]) != "d/a hard" {
		t.Errorf("met %v, %v; stopped %q, %q", p[0].Met, p[1].Met, stopOf(p[1]), stopOf(p[2]))
	}
}

// When a recorded pod gets another sandbox, the line says everything that is known of it. What the old one used does not count.
func TestRecordedPodStartsAgain(t *testing.T) {
	const conf = "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"nodefs.available\" = \"1Gi\"\n\"imagefs.available\" = \"0%\"\n"
	const pods = `"pods":[{"name":"d/a","uid":"a","disk_usage":{"rootfs":"9Gi","logs":0,"volumes":0}},{"name":"d/b","uid":"b","disk_usage":{"rootfs":"2Gi","logs":0,"volumes":0}}]`
	p := simulate(t, conf, Options{},
		`{"at":"0s","recorded":true,"layout":"single","signals":{"nodefs.available":{"available":"5Gi","capacity":"20Gi"}},`+pods+`}`,
		`{"at":"1s","signals":{"nodefs.available":{"available":"500Mi"}},"ended_pods":["a"],"changed_pods":[{"name":"d/a","uid":"a"}]}`,
		`{"at":"2s","changed_pods":[{"uid":"a","disk_usage":{"rootfs":"1Mi","logs":0,"volumes":0}}]}`)
	if p[1].Stop != nil || p[1].Held != api.HeldReclaiming || stopOf(p[2]) != "d/b hard" {
		t.Errorf("stopped %q, held by %q; then stopped %q", stopOf(p[1]), p[1].Held, stopOf(p[2]))
	}
}

// A gap in a recording, as after a suspend, counts for a grace period as in the service: 10 s of it. Lines by hand may be
// hours apart.
func TestRecordedGap(t *testing.T) {
	const conf = "[eviction.hard]\n\"memory.available\" = \"0%\"\n" +
		"[eviction.soft]\n\"memory.available\" = \"1Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"30s\"\n"
	for recorded, want := range map[string]string{`,"recorded":true`: "8h0m19s", "": "8h0m0s"} {
		lines := []string{
			memoryLine("0s", "3Gi", `,"pods":[{"name":"d/a","uid":"1","memory_usage":"3Gi"}]`+recorded),
			memoryLine("1s", "900Mi", ""), memoryLine("2s", "900Mi", ""),
		}
		for i := range 30 {
			lines = append(lines, memoryLine(fmt.Sprintf("8h%ds", i), "900Mi", ""))
		}
		p := simulate(t, conf, Options{}, lines...)
		if i := slices.IndexFunc(p, func(p Pass) bool { return p.Stop != nil }); i < 0 || p[i].At.String() != want {
			t.Errorf("%q: line %d makes the first stop, want one at %s", recorded, i+1, want)
		}
	}
}

// A changed or ended pod must be known.
func TestChangesOfUnknownPods(t *testing.T) {
	for line, want := range map[string]string{
		`{"at":"1s","changed_pods":[{"uid":"9"}]}`:                               "trace line 2: changed_pods[0]: name is missing",
		`{"at":"1s","changed_pods":[{"uid":"1"},{"name":"d/a"}]}`:                "trace line 2: changed_pods[1] 1: named twice",
		`{"at":"1s","ended_pods":["d/b"]}`:                                       "trace line 2: ended_pods[0] d/b: no line names it before",
		`{"at":"1s","changed_pods":[{"name":"d/b","pids":-1}]}`:                  "trace line 2: changed_pods[0] d/b: pids is negative",
		`{"at":"1s","ended_pods":["d/a"],"changed_pods":[{"uid":"1","pids":3}]}`: "",
	} {
		err := traceError(`{"at":"0s","pods":[{"name":"d/a","uid":"1"}]}`, line)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: error %v, want %q", line, err, want)
		}
	}
}
