package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// serve answers requests on the control socket of a new run directory.
func serve(t *testing.T, answer http.HandlerFunc) (dir string) {
	t.Helper()
	dir = runDir(t)
	l, err := net.Listen("unix", rundir.Dir(dir).Socket())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: answer}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return dir
}

// servePasses answers history requests from a list that may grow.
func servePasses(t *testing.T, passes func() []api.Pass) (dir string) {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.FormValue("n"))
		from, _ := strconv.ParseUint(r.FormValue("from"), 10, 64)
		since, _ := time.Parse(time.RFC3339Nano, r.FormValue("since"))
		q := api.HistoryQuery{N: n, From: from, Since: since}
		list := slices.DeleteFunc(passes(), func(p api.Pass) bool { return !q.Selects(p.ID, p.Time) })
		if n > 0 {
			list = list[max(len(list)-n, 0):]
		}
		_ = json.NewEncoder(w).Encode(api.HistoryList{APIVersion: api.APIVersion, Passes: list})
	})
}

// somePasses are five passes, two of them today.
func somePasses(now time.Time) []api.Pass {
	stop := func(pod, signal string) *api.StopView {
		return &api.StopView{Pod: pod, Sandbox: "s-" + pod, Signal: signal, Kind: "hard", Reason: "because of " + pod}
	}
	ended := *stop("default/leaky", "memory.available")
	ended.Pass, ended.Result = 1, &api.StopResult{Emptied: true, Method: "direct"}
	return []api.Pass{
		{ID: 1, Time: now.Add(-50 * time.Hour), Wake: "timer", Stop: stop("default/leaky", "memory.available")},
		{ID: 2, Time: now.Add(-50 * time.Hour), Wake: "stop", Settled: []api.StopView{ended}},
		{ID: 3, Time: now.Add(-30 * time.Hour), Wake: "reclaim", Reclaimed: []api.ReclaimView{{Signal: policy.ImageFSAvailable, Steps: []string{"images"}}}},
		{ID: 4, Time: now.Add(-2 * time.Second), Wake: "timer", Stop: stop("shop/db", "nodefs.available")},
		{ID: 5, Time: now.Add(-time.Second), Wake: "timer", Held: api.HeldBudget, HeldBy: "memory.available:hard"},
	}
}

func TestHistory(t *testing.T) {
	now := time.Now()
	dir := servePasses(t, func() []api.Pass { return somePasses(now) })
	for args, want := range map[string][]uint64{
		"":                               {1, 2, 3, 4, 5},
		"--number 2":                     {4, 5},
		"--stops":                        {1, 2, 4},
		"--stops --number 2":             {2, 4},
		"--pod default/leaky":            {1, 2},
		"--pod leaky":                    {1, 2},
		"--pod eaky":                     nil,
		"--pod default/other":            nil,
		"--since 2d":                     {3, 4, 5},
		"--since 2d --stops":             {4},
		"-s memory.available":            {1, 2, 5},
		"-s imagefs.available":           {3},
		"-s nodefs.available":            {4},
		"-s pid.available":               nil,
		"-s memory.available --number 1": {5},
	} {
		code, out, errs := captured(t, append(strings.Fields("history -o json "+args), "--run-dir", dir)...)
		var list api.HistoryList
		if err := json.Unmarshal([]byte(out), &list); err != nil || code != cli.ExitOK {
			t.Fatalf("%s: exit code %d, %v, %s", args, code, err, errs)
		}
		var got []uint64
		for i := range list.Passes {
			got = append(got, list.Passes[i].ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: passes %v, want %v", args, got, want)
		}
	}
	if _, out, _ := captured(t, "history", "--pod", "default/other", "--run-dir", dir); out != "No pass matches.\n" {
		t.Errorf("without a match: %q", out)
	}
	for _, bad := range []string{"--pod default/", "--pod /", "--signal memory", "--since yesterday"} {
		if code, _, errs := captured(t, append(strings.Fields("history "+bad), "--run-dir", dir)...); code != cli.ExitUsage || !strings.Contains(errs, strings.Fields(bad)[0]) {
			t.Errorf("%s: exit code %d, %s", bad, code, errs)
		}
	}
}

// A time of day that is still to come is yesterday's, and a note says so. JSON has no notes.
func TestSinceYesterday(t *testing.T) {
	now := time.Date(2026, time.May, 1, 20, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"23:59": "note: 23:59 is still to come today: since yesterday, 2026-04-30 23:59:00\n", "19:59": "", "20:00": "", "2d": "", "2026-04-30": "",
	} {
		for output, want := range map[string]string{"": want, "table": want, "json": ""} {
			var errs strings.Builder
			cmd := &cobra.Command{}
			cmd.SetErr(&errs)
			if _, err := (&options{Output: cli.Output{Format: output}}).since(cmd, text, now); err != nil || errs.String() != want {
				t.Errorf("--since %s -o %s: %v, %q, want %q", text, output, err, errs.String(), want)
			}
		}
	}
}

// In 80 columns, what happened and why count more than how long ago it was.
func TestHistoryOnANarrowTerminal(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	t.Setenv("LC_ALL", "C.UTF-8")
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keyboard.Close() }()
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, time.May, 1, 20, 0, 0, 0, time.UTC)
	p := api.Pass{ID: 61, Time: now.Add(-time.Minute), Wake: "timer", Held: api.HeldBudget, HeldBy: "allocatableMemory.available:hard and more"}
	p.NextStopIn = api.Duration(time.Minute)
	printHistory(screen, []api.Pass{p}, now)
	_ = screen.Close()
	out, _ := io.ReadAll(keyboard) // ends with an error when the screen is closed
	want := "PASS  TIME          WHAT                           WHY\r\n61    19:59:00.000  held back: budget, next stop…  allocatableMemory.available:…\r\n"
	if got := regexp.MustCompile(` +\r`).ReplaceAllString(string(out), "\r"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// A pass of another day has a date.
func TestHistoryDates(t *testing.T) {
	now := time.Now()
	_, out, _ := captured(t, "history", "--run-dir", servePasses(t, func() []api.Pass { return somePasses(now) }))
	if old := now.Add(-50 * time.Hour).Format("2006-01-02 15:04:05"); strings.Count(out, old) != 2 {
		t.Errorf("no date %s in\n%s", old, out)
	}
}

// --follow prints the newest passes and then each new one once, until it is interrupted.
func TestHistoryFollow(t *testing.T) {
	now := time.Now()
	for _, args := range [][]string{{"history", "-f", "--number", "2"}, {"history", "-f", "--stops", "-o", "json"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var asked atomic.Int32
			dir := servePasses(t, func() []api.Pass {
				passes := somePasses(now)
				switch asked.Add(1) {
				case 1:
					return passes[:3]
				case 2:
					return passes
				default:
					_ = syscall.Kill(syscall.Getpid(), syscall.SIGINT)
					return passes
				}
			})
			code, out, errs := captured(t, append(args, "--run-dir", dir)...)
			ids, want := printedIDs(out), "2 3 4 5"
			if slices.Contains(args, "--stops") {
				want = "1 2 4"
			}
			if code != cli.ExitOK || errs != "" || ids != want {
				t.Errorf("exit code %d, passes %s, want %s\n%s%s", code, ids, want, out, errs)
			}
		})
	}
}

// --follow prints each new pass even if the service has lost its history, so that IDs are used again.
func TestHistoryFollowLostHistory(t *testing.T) {
	now := time.Now()
	for name, first := range map[string]uint64{"IDs start again": 1, "the last ID is used twice": 903} {
		t.Run(name, func(t *testing.T) {
			lost := somePasses(now)
			for i, id := range []uint64{901, 902, 903, first, first + 1} {
				lost[i].ID = id
			}
			var asked atomic.Int32
			dir := servePasses(t, func() []api.Pass {
				switch n := asked.Add(1); {
				case n == 1:
					return slices.Clone(lost[:3])
				case n > 3: // the second time asks twice
					_ = syscall.Kill(syscall.Getpid(), syscall.SIGINT)
				}
				return slices.Clone(lost[3:])
			})
			code, out, errs := captured(t, "history", "-f", "--number", "1", "--run-dir", dir)
			want := fmt.Sprintf("903 %d %d", first, first+1)
			if ids := printedIDs(out); code != cli.ExitOK || errs != "" || ids != want {
				t.Errorf("exit code %d, passes %s, want %s\n%s%s", code, ids, want, out, errs)
			}
		})
	}
}

// printedIDs returns the IDs of the passes that --follow printed.
func printedIDs(out string) string {
	var ids []string
	for line := range strings.Lines(out) {
		if m := regexp.MustCompile(`^{"id":(\d+)|  pass (\d+)  `).FindStringSubmatch(line); m != nil {
			ids = append(ids, m[1]+m[2])
		}
	}
	return strings.Join(ids, " ")
}

// After a stop, the pods that were no candidates are counted by the reason.
func TestExplainCountsThoseExcluded(t *testing.T) {
	passes := []api.Pass{{ID: 7, Held: api.HeldProtected, HeldBy: "memory.available:hard", Ranked: []api.RankedView{
		{Pod: "d/a", Excluded: "static pod"}, {Pod: "d/b", Excluded: "static pod"}, {Pod: "d/c", Excluded: "its stop would give nothing back"},
	}}}
	dir := servePasses(t, func() []api.Pass { return passes })
	if _, out, errs := captured(t, "explain", "7", "--run-dir", dir); !strings.HasSuffix(out, "\nNot candidates: 2 (static pod), 1 (its stop would give nothing back).\n") {
		t.Errorf("%s%s", out, errs)
	}
}

// explain shows the last stop, a pod's last stop, a pass, or the last pass.
func TestExplainArguments(t *testing.T) {
	now := time.Now()
	passes := somePasses(now)
	dir := servePasses(t, func() []api.Pass { return slices.Clone(passes) })
	for arg, want := range map[string]string{
		"": "Pass 4,", "default/leaky": "Pass 1,", "leaky": "Pass 1,", "shop/db": "Pass 4,", "last": "Pass 5,", "3": "Pass 3,",
	} {
		code, out, errs := captured(t, append(strings.Fields("explain "+arg), "--run-dir", dir)...)
		if code != cli.ExitOK || errs != "" || !strings.HasPrefix(out, want) {
			t.Errorf("explain %s: exit code %d, %.40q, want %s\n%s", arg, code, out, want, errs)
		}
	}
	if _, out, _ := captured(t, "explain", "default/leaky", "--run-dir", dir); !strings.Contains(out, "found in pass 2") {
		t.Errorf("the stop has no result:\n%s", out)
	}
	passes[1].Time = now.Add(-60 * time.Hour) // the clock was set back
	if _, out, _ := captured(t, "explain", "1", "--run-dir", dir); !strings.Contains(out, "found in pass 2") {
		t.Errorf("the stop has no result after the clock was set back:\n%s", out)
	}
	for arg, want := range map[string]string{
		"a//b": "a pod as namespace/name", "default/other": "no stop of this pod", "9": "passes 1 to 5", "0": "want the number",
	} {
		if code, _, errs := captured(t, "explain", arg, "--run-dir", dir); code != cli.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("explain %s: exit code %d, %q", arg, code, errs)
		}
	}
	passes = passes[2:3]
	if code, out, errs := captured(t, "explain", "--run-dir", dir); code != cli.ExitOK || !strings.HasPrefix(out, "Pass 3,") || !strings.Contains(errs, "no pod was stopped") {
		t.Errorf("without a stop: exit code %d, %.40q, %s", code, out, errs)
	}
	passes = nil
	if code, out, errs := captured(t, "explain", "--run-dir", dir); code != cli.ExitOK || out != "The history has no pass.\n" {
		t.Errorf("without a pass: exit code %d, %s%s", code, out, errs)
	}
	if code, out, errs := captured(t, "explain", "-o", "json", "--run-dir", dir); code != cli.ExitOK || !strings.Contains(out, `"pass": null`) {
		t.Errorf("without a pass: exit code %d, %s%s", code, out, errs)
	}
	for _, arg := range []string{"last", "1"} {
		if code, _, errs := captured(t, "explain", arg, "--run-dir", dir); code != cli.ExitUsage || !strings.Contains(errs, "the history has no pass") {
			t.Errorf("explain %s without a pass: exit code %d, %s", arg, code, errs)
		}
	}
}

// explain counts the stops of a workload, also the earlier ones if it names the pass.
func TestExplainCountsStops(t *testing.T) {
	now := time.Now()
	var passes []api.Pass
	for id := range uint64(3) {
		stop := &api.StopView{Pod: fmt.Sprint("jobs/leaky-", id), Workload: "jobs/leaky"}
		passes = append(passes, api.Pass{ID: id + 1, Time: now.Add(time.Duration(id)*time.Second - time.Minute), Stop: stop}) //nolint:gosec // not large
	}
	dir := servePasses(t, func() []api.Pass { return slices.Clone(passes) })
	for arg, want := range map[string]string{"": "3 stops within an hour, this one included, none since", "2": "2 stops within an hour, this one included, and 1 since", "jobs/leaky-0": "1 stop within an hour, this one included, and 2 since"} {
		if _, out, errs := captured(t, append(strings.Fields("explain "+arg), "--run-dir", dir)...); !strings.Contains(out, "\nWorkload jobs/leaky: "+want) {
			t.Errorf("explain %s: no %q in\n%s%s", arg, want, out, errs)
		}
	}
}

// explain and history say why the fleet held a stop back, and when it is asked again. The ranking shows which pod it was.
func TestExplainOfAHoldByTheFleet(t *testing.T) {
	p := api.Pass{
		ID: 7, Time: time.Now(), Wake: "timer", Held: api.HeldFleet, HeldBy: "memory.available:soft", HeldDetail: "fleet is full: 0/s",
		NextStopIn: api.Duration(22 * time.Second), Ranked: []api.RankedView{{Position: 1, Pod: "shop/web"}},
	}
	dir := servePasses(t, func() []api.Pass { return []api.Pass{p} })
	_, out, errs := captured(t, "explain", "7", "--run-dir", dir)
	for _, want := range []string{"\nheld back: fleet: fleet is full: 0/s, asked again in 22s\n    memory.available:soft\n", "\nRanked for memory.available at that moment\n", "shop/web"} {
		if !strings.Contains(out, want) {
			t.Errorf("explain: no %q in\n%s%s", want, out, errs)
		}
	}
	if _, out, _ := captured(t, "history", "--run-dir", dir); !strings.Contains(out, "held back: fleet: fleet is full: 0/s, asked again in 22s") {
		t.Errorf("history:\n%s", out)
	}
	if _, out, _ := captured(t, "explain", "7", "-o", "json", "--run-dir", dir); !strings.Contains(out, `"held_detail": "fleet is full: 0/s"`) {
		t.Errorf("JSON:\n%s", out)
	}
}
