package simulate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// stopsOf returns the pods that were stopped, in order.
func stopsOf(passes []Pass) (pods []string) {
	for _, p := range passes {
		if p.Stop != nil {
			pods = append(pods, p.Stop.Pod)
		}
	}
	return pods
}

// lastHeld returns what held back a stop in the last pass.
func lastHeld(passes []Pass) string { return passes[len(passes)-1].Held }

// manyPods returns that many pods with the given facts.
func manyPods(count int, facts string) string {
	pods := make([]string, count)
	for i := range pods {
		pods[i] = fmt.Sprintf(`{"name":"d/p%d","uid":"p%[1]d"%s}`, i, facts)
	}
	return strings.Join(pods, ",")
}

// Three pods of 3 MiB give nothing back that matters, so the leak is stopped although it ranks last.
func TestCaseSmallPodsBeforeALeak(t *testing.T) {
	line := func(at, available, pods string) string {
		return `{"at":"` + at + `","signals":{"memory.available":{"available":"` + available + `","capacity":"4Gi"}}` + pods + `}`
	}
	small := manyPods(3, `,"priority":-10,"qos":"BestEffort","memory_usage":"3Mi"`)
	p := simulate(t, "", Options{},
		line("0s", "20Mi", `,"pods":[`+small+`,{"name":"d/leak","qos":"Burstable","memory_request":"64Mi","memory_usage":"3Gi"}]`),
		line("1s", "3Gi", ""), line("2s", "3Gi", ""))
	if got := stopsOf(p); fmt.Sprint(got) != "[d/leak]" {
		t.Errorf("stopped %v", got)
	}
}

// A workload that was stopped in an earlier episode has no bad name: the leak of another pod is stopped.
func TestCaseStoppedInAnEarlierEpisode(t *testing.T) {
	a := `{"name":"d/a","uid":"%s","qos":"Guaranteed","memory_request":"1Gi","priority":100,"memory_usage":"%s"}`
	b := `{"name":"d/b","qos":"BestEffort","priority":-5,"memory_usage":"%s"}`
	pods := func(aUID, aUses, bUses string) string {
		return `,"pods":[` + fmt.Sprintf(a, aUID, aUses) + `,` + fmt.Sprintf(b, bUses) + `]`
	}
	p := simulate(t, memoryConfig, Options{},
		memoryLine("0s", "500Mi", `,"pods":[`+fmt.Sprintf(a, "1", "2Gi")+`]`),
		memoryLine("60s", "3Gi", pods("2", "100Mi", "1Gi")),
		memoryLine("4m", "300Mi", pods("2", "100Mi", "6Gi")))
	if got := stopsOf(p); fmt.Sprint(got) != "[d/a d/b]" || p[2].Stop == nil {
		t.Errorf("stopped %v, held by %q", got, lastHeld(p))
	}
}

// Two signals of memory are one pool, with one breaker.
func TestCaseTwoSignalsOneBreaker(t *testing.T) {
	const conf = memoryConfig + "\"meminfo.available\" = \"1Gi\"\n"
	lines := []string{`{"at":"0s","signals":{"memory.available":{"available":"900Mi","capacity":"8Gi"},"meminfo.available":{"available":"800Mi","capacity":"8Gi"}},` +
		`"pods":[` + manyPods(12, `,"memory_usage":"500Mi"`) + `]}`}
	for i := 1; i <= 60; i++ {
		lines = append(lines, fmt.Sprintf(`{"at":"%ds"}`, i*5))
	}
	p := simulate(t, conf, Options{}, lines...)
	if got := stopsOf(p); len(got) != 3 || lastHeld(p) != api.HeldBreaker {
		t.Errorf("%d stops, then held by %q", len(got), lastHeld(p))
	}
}

// A stall is measured against the memory that lacks: a tiny pod that came back or a small growth does not
// matter.
func TestCaseStall(t *testing.T) {
	const conf = "[eviction]\nstall_floor = \"1Gi\"\n[eviction.hard]\n\"memory.available\" = \"0%\"\n\"memory.stall\" = \"10%\"\n"
	line := func(at, stall, pods string) string {
		return `{"at":"` + at + `","signals":{"memory.stall":{"available":"` + stall + `","capacity":"100"},` +
			`"meminfo.available":{"available":"200Mi","capacity":"8Gi"}},"pods":[` + pods + `]}`
	}
	tiny := `{"name":"d/tiny","priority":-9,"memory_usage":"2Mi"}`
	guaranteed := `{"name":"d/db","qos":"Guaranteed","memory_request":"2Gi","memory_usage":"%d"}`
	hog := `{"name":"d/hog","uid":"%d","priority":5,"memory_usage":"3Gi"}`
	pods := func(db, hogs int) string {
		list := []string{tiny, fmt.Sprintf(guaranteed, db)}
		for i := range hogs {
			list = append(list, strings.Replace(fmt.Sprintf(hog, i), "d/hog", fmt.Sprint("d/hog", i), 1))
		}
		return strings.Join(list, ",")
	}
	p := simulate(t, conf, Options{}, line("0s", "5", pods(1<<30, 2)), line("15s", "5", pods(1<<30+1_000_000, 2)), line("30s", "5", pods(1<<30+2_000_000, 2)))
	if got := stopsOf(p); len(got) != 3 || strings.Contains(fmt.Sprint(got), "tiny") || strings.Contains(fmt.Sprint(got), "db") {
		t.Errorf("stopped %v, held by %q", got, lastHeld(p))
	}
	// While 20 MiB lack, the tiny pod helps, and is stopped. When it has come back and 824 MiB lack, it holds nothing back.
	little := strings.Replace(line("0s", "5", tiny+","+fmt.Sprintf(hog, 0)), "200Mi", "1004Mi", 1)
	small := simulate(t, conf, Options{}, little, line("5s", "5", tiny+","+strings.Replace(fmt.Sprintf(hog, 0), "3Gi", "4Gi", 1)))
	if got := stopsOf(small); fmt.Sprint(got) != "[d/tiny d/hog]" {
		t.Errorf("stopped %v, held by %q", got, lastHeld(small))
	}
}

// While a hard threshold is due and held, soft thresholds of the pool do nothing.
func TestCaseSoftDoesNotPayForHard(t *testing.T) {
	const conf = memoryConfig + "[eviction.soft]\n\"memory.available\" = \"2Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"1s\"\n" +
		"[budget]\nbreaker = 0\nhard = {burst = 1, every = \"1h\"}\nsoft = {burst = 5, every = \"1s\"}\n"
	lines := []string{memoryLine("0s", "500Mi", `,"pods":[`+manyPods(6, `,"memory_usage":"900Mi"`)+`]`)}
	for i := 1; i <= 20; i++ {
		lines = append(lines, fmt.Sprintf(`{"at":"%ds"}`, 15*i))
	}
	p := simulate(t, conf, Options{}, lines...)
	if got := stopsOf(p); len(got) != 1 || p[0].Stop == nil || p[0].Stop.Kind != policy.Hard.String() || lastHeld(p) != api.HeldBudget {
		t.Errorf("stopped %v, then held by %q", got, lastHeld(p))
	}
	// Once only the soft threshold is due, it acts.
	p = simulate(t, conf, Options{}, append(lines, memoryLine("10m", "1500Mi", ""), memoryLine("11m", "1500Mi", ""))...)
	if last := p[len(p)-1]; last.Stop == nil || last.Stop.Kind != policy.Soft.String() {
		t.Errorf("above the hard threshold: %q, held by %q", stopOf(last), last.Held)
	}
}

// An unknown usage is never treated as zero.
func TestCaseUsageUnknown(t *testing.T) {
	p := simulate(t, memoryConfig, Options{}, memoryLine("0s", "500Mi", `,"pods":[`+manyPods(3, `,"no_stats":true,"memory_usage":"2Gi"`)+`]`))
	if p[0].Stop != nil || p[0].Held != api.HeldUnknown {
		t.Errorf("no stats: stopped %q, held by %q", stopOf(p[0]), p[0].Held)
	}
	p = simulate(t, diskConfig, Options{}, `{"at":"0s","signals":{"nodefs.available":{"available":"500Mi","capacity":"20Gi"}},"pods":[{"name":"d/unknown"},`+
		manyPods(3, `,"disk_usage":{"rootfs":"4Ki","logs":0,"volumes":0}`)+`]}`, `{"at":"20s"}`, `{"at":"40s"}`, `{"at":"60s"}`, `{"at":"80s"}`, `{"at":"100s"}`)
	if got := stopsOf(p); len(got) != 0 || lastHeld(p) != api.HeldUnknown { // after it was measured again
		t.Errorf("unknown disk usage: stopped %v, held by %q", got, lastHeld(p))
	}
}

// A minimum reclaim that lifts the target above the capacity can never be met, and is ignored.
func TestCaseUnreachableMinimumReclaim(t *testing.T) {
	const conf = memoryConfig + "[eviction.minimum_reclaim]\n\"memory.available\" = \"8Gi\"\n"
	lines := []string{memoryLine("0s", "500Mi", `,"pods":[`+manyPods(7, `,"memory_usage":"1Gi"`)+`]`)}
	for i := 1; i <= 10; i++ {
		lines = append(lines, memoryLine(fmt.Sprintf("%dm", i), "5Gi", ""))
	}
	if got := stopsOf(simulate(t, conf, Options{}, lines...)); len(got) != 1 {
		t.Errorf("stopped %v, want one pod", got)
	}
}

// Stops over a storage limit take from the soft budget, and count separately in the hour.
func TestCaseLimitsDoNotSpendTheHardBudget(t *testing.T) {
	const conf = memoryConfig + "[budget]\nper_hour = 12\n[backoff]\nfirst = \"10s\"\nmax = \"10s\"\n"
	var lines []string
	for i := range 30 {
		lines = append(lines, memoryLine(fmt.Sprintf("%ds", i*110), "5Gi",
			`,"pods":[{"name":"d/log","ephemeral_storage_limit":"1Gi","disk_usage":{"rootfs":"2Gi","logs":0,"volumes":0},"memory_usage":"1Mi"},{"name":"d/big","memory_usage":"3Gi"}]`))
	}
	soft := strings.Replace(conf, "per_hour = 12", "per_hour = 12\nsoft = {burst = 20, every = \"1s\"}", 1)
	lines = append(lines, memoryLine("3299s", "500Mi", ""))
	p := simulate(t, soft, Options{}, lines...)
	got := stopsOf(p)
	if len(got) != 13 || got[11] != "d/log" || got[12] != "d/big" || p[len(p)-1].Stop == nil {
		t.Errorf("stopped %v, held by %q", got, lastHeld(p))
	}
}

// On a single filesystem, unused images relieve nodefs and imagefs together.
func TestCaseUnusedImagesComeFirst(t *testing.T) {
	line := `{"at":"0s","layout":"single","signals":{"nodefs.available":{"available":"5Gi","capacity":"100Gi"},"imagefs.available":{"available":"5Gi","capacity":"100Gi"}},` +
		`"pods":[` + manyPods(3, `,"disk_usage":{"rootfs":"9Gi","logs":"1Gi","volumes":0}`) + `],"images":[{"id":"1","size":"10Gi"},{"id":"2","size":"20Gi"}]}`
	p := simulate(t, "", Options{}, line, `{"at":"20s"}`, `{"at":"40s"}`)
	if got := stopsOf(p); len(got) != 0 || len(p[0].Reclaimed) == 0 {
		t.Errorf("stopped %v, reclaimed %v", got, p[0].Reclaimed)
	}
}
