package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

func pressed() api.Status {
	return api.Status{
		Runtime: api.RuntimeStatus{Up: true}, APIVersion: api.APIVersion, Live: true, Mode: "enforce", Conditions: policy.ConditionsOf(policy.MemoryPressure, policy.DiskPressure),
		ClearsIn: map[string]api.Duration{"MemoryPressure": api.Duration(13*time.Second + 1)},
		Held:     api.HeldBudget, HeldBy: "nodefs.available:hard", NextStopIn: api.Duration(22 * time.Second), AlsoHeld: []api.Hold{{Threshold: "imagefs.available:hard", Reason: api.HeldOutside}},
	}
}

// The status says when a condition clears and when the next stop is allowed.
func TestStatusSaysWhen(t *testing.T) {
	dir := serve(t, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(pressed()) })
	code, out, errs := captured(t, "status", "--run-dir", dir)
	for _, want := range []string{
		"\nconditions  MemoryPressure (clears in 14s), DiskPressure\n", "\nheld back   nodefs.available:hard: budget, next stop allowed in 22s\nheld back   imagefs.available:hard: outside pods\n",
	} {
		if code != cli.ExitFinding || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s%s", code, want, out, errs)
		}
	}
	var st map[string]any
	_, out, _ = captured(t, "status", "-o", "json", "--run-dir", dir)
	if err := json.Unmarshal([]byte(out), &st); err != nil || st["next_stop_in"] != "22s" || st["clears_in"].(map[string]any)["MemoryPressure"] != "13.000000001s" {
		t.Errorf("%v: %s", err, out)
	}
}

// The status says why the fleet holds a stop back.
func TestStatusOfAHoldByTheFleet(t *testing.T) {
	st := pressed()
	st.Held, st.HeldBy, st.HeldDetail = api.HeldFleet, "memory.available:soft", "alone for 6m, soft stops at a tenth"
	st.AlsoHeld = []api.Hold{{Threshold: "pid.available:soft", Reason: api.HeldFleet, Detail: "zone z1 is partial: 0/s"}}
	dir := serve(t, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(st) })
	want := "\nheld back   memory.available:soft: fleet: alone for 6m, soft stops at a tenth, asked again in 22s\nheld back   pid.available:soft: fleet: zone z1 is partial: 0/s\n"
	if _, out, errs := captured(t, "status", "--run-dir", dir); !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s%s", want, out, errs)
	}
}

// --quiet prints nothing and sets the exit code.
func TestStatusQuiet(t *testing.T) {
	st := pressed()
	dir := serve(t, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(st) })
	for _, want := range []int{cli.ExitFinding, cli.ExitOK} {
		if code, out, errs := captured(t, "status", "-q", "--run-dir", dir); code != want || out != "" || errs != "" {
			t.Errorf("exit code %d, want %d, stdout %q, stderr %q", code, want, out, errs)
		}
		st.Conditions = 0
	}
	if code, out, errs := captured(t, "status", "-q", "-w", "--run-dir", dir); code != cli.ExitUsage || out != "" || !strings.Contains(errs, "want one of them") {
		t.Errorf("with --watch: exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}

// --watch prints the status until it is interrupted; the exit code is that of the last one.
func TestStatusWatch(t *testing.T) {
	for output, count := range map[string]string{"table": "conditions  ", "json": `{"apiVersion"`} {
		var asked atomic.Int32
		dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
			st := pressed()
			switch asked.Add(1) {
			case 2:
				st.Conditions = 0
			case 3:
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGINT)
				<-r.Context().Done()
				return
			}
			_ = json.NewEncoder(w).Encode(st)
		})
		code, out, errs := captured(t, "status", "--watch", "-o", output, "--run-dir", dir)
		if code != cli.ExitOK || strings.Count(out, count) != 2 || errs != "" {
			t.Errorf("%s: exit code %d, %s\n%s", output, code, errs, out)
		}
		first, _, _ := strings.Cut(out, "\n")
		if _, err := time.Parse(time.DateTime, first); output == "table" && err != nil {
			t.Errorf("a status that is repeated has no time: %v", err)
		}
	}
}

// With -o json, an error during --watch is a line of JSON, too.
func TestStatusWatchError(t *testing.T) {
	var asked atomic.Int32
	dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			_ = json.NewEncoder(w).Encode(pressed())
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(api.Error{Error: "wait for the decision loop"})
		default:
			_ = syscall.Kill(syscall.Getpid(), syscall.SIGINT)
			<-r.Context().Done()
		}
	})
	code, out, errs := captured(t, "status", "--watch", "-o", "json", "--run-dir", dir)
	lines := strings.Split(out, "\n")
	if want := `{"apiVersion":"criguard.io/v1","error":"wait for the decision loop"}`; code != cli.ExitUsage || len(lines) != 3 || lines[1] != want || errs != "" {
		t.Errorf("exit code %d, stderr %q, got\n%s\nwant the second line\n%s", code, errs, out, want)
	}
}

// The status says once that no runtime answers, and then why: an endpoint that fails before the sockets that are absent.
func TestStatusOfADeadRuntime(t *testing.T) {
	const timeout = "probe unix:///run/a: get version: runtime did not answer in time: gave up after 2s"
	const several = timeout + "; probe unix:///run/b: get version: runtime is not reachable: dial unix /run/b: connect: permission denied; runtime is not reachable: no socket /run/c, /run/d"
	for text, want := range map[string]string{
		"find runtime: " + several: "\nruntime     no runtime answers\n            " + timeout +
			"\n            probe unix:///run/b: get version: dial unix /run/b: connect: permission denied\n            no socket at 2 other known paths\n            run as root\nnode ",
		"find runtime: runtime is not reachable: no socket /run/a, /run/b": "\nruntime     no runtime answers\n            no socket /run/a, /run/b\n",
		"list containers: context deadline exceeded":                       "            list containers: context deadline exceeded\n",
	} {
		var out strings.Builder
		printStatus(&out, &api.Status{Runtime: api.RuntimeStatus{Error: "no container runtime answers: " + text}})
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// The status counts a single pod as one, and words a stop and a duration as the other commands do.
func TestStatusWords(t *testing.T) {
	st := api.Status{
		Live: true, Mode: "enforce", Pods: 1, InFlight: []string{"jobs/a for command", "jobs/b for memory.available"}, Kernel: api.KernelStatus{Wakes: []string{"timer"}},
		Runtime: api.RuntimeStatus{Up: true, Name: "containerd", Version: "v2", ListedAt: new(api.Duration)},
		Signals: []api.SignalStatus{{
			SignalView: api.SignalView{Signal: policy.MemoryAvailable, Status: "ok", Available: 1 << 30, Capacity: 4 << 30},
			Thresholds: []api.ThresholdStatus{{Kind: "soft", Value: "600Mi", Amount: 600 << 20, Grace: api.Duration(2 * time.Minute)}},
		}},
	}
	text := func() string {
		var out strings.Builder
		printStatus(&out, &st)
		return out.String()
	}
	for _, want := range []string{", 1 pod (0 protected) listed ", "\nstopping    jobs/a, by a command\nstopping    jobs/b for memory.available\n", "\nwoken by    timer\n", "  600Mi for 2m  "} {
		if out := text(); !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// Without a service, nothing is woken, and the mode is only the configuration's.
	st.Live = false
	if out := text(); !strings.Contains(out, "inspected the node directly; the configuration says enforce mode\n") || strings.Contains(out, "woken by") {
		t.Errorf("without a service:\n%s", out)
	}
}

// The status names the workloads that may be stopped again: those in back-off, and those that were stopped again and again.
func TestStatusNamesStoppedWorkloads(t *testing.T) {
	st := api.Status{Live: true}
	add := func(name string, stops int, ago, left time.Duration) {
		st.Budget.Workloads = append(st.Budget.Workloads, api.Workload{Workload: name, Stops: stops, Ago: api.Duration(ago), RetryAfter: api.Duration(left)})
	}
	add("jobs/once", 1, time.Minute, 0)
	add("jobs/leaky", 3, 12*time.Second, 28*time.Second)
	add("jobs/new", 1, 2*time.Second, 8*time.Second)
	add("jobs/again", 2, 5*time.Minute, 0)
	text := func() string {
		var out strings.Builder
		printStatus(&out, &st)
		return out.String()
	}
	want := "\nstopped     jobs/leaky: 3 stops in a row, the last 12s ago; in back-off for another 28s (soft stops of it wait)\n" +
		"stopped     jobs/new: 1 stop, 2s ago; in back-off for another 8s (soft stops of it wait)\nstopped     jobs/again: 2 stops in a row, the last 5m ago\n\n"
	if out := text(); !strings.Contains(out, want) || strings.Contains(out, "jobs/once") {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	for range 10 { // as in a drain
		add("jobs/drained", 1, time.Second, time.Second)
	}
	if out := text(); strings.Count(out, "\nstopped ") != 5 || !strings.Contains(out, "\n            and 8 more workloads\n") {
		t.Errorf("after a drain:\n%s", out)
	}
}

// A warning names the directories of the sockets that are absent. The sockets themselves are then only counted.
func TestStatusNamesSocketsOnce(t *testing.T) {
	st := api.Status{Runtime: api.RuntimeStatus{Error: "no container runtime answers: find runtime: runtime is not reachable: no socket /run/a/a.sock, /run/b/b.sock"}}
	st.Warnings = []string{"no directory of a runtime's socket exists: /run/a, /run/b (hint: in a pod, mount the one that the node has)"}
	var out strings.Builder
	printStatus(&out, &st)
	if !strings.Contains(out.String(), "\n            no socket at 2 known paths\n") || strings.Count(out.String(), "/run/a") != 1 {
		t.Errorf("got\n%s", out.String())
	}
}

// Pods of the same name are shown with their sandboxes, and so is the amount that a stop would free, even if it is small.
func TestPodsInTables(t *testing.T) {
	var out strings.Builder
	printRanked(&out, policy.MemoryAvailable, []api.RankedView{
		{Position: 1, Pod: "jobs/again", Sandbox: "f6ebfdfb71d09aaaa", Known: true, Usage: 9 << 20, Frees: 9 << 20},
		{Position: 2, Pod: "jobs/again", Sandbox: "986f512219784bbbb", Known: true, Usage: 8 << 20, Frees: 8 << 20},
		{Pod: "jobs/small", Sandbox: "1", Known: true, Frees: 36 << 10, Excluded: policy.ExcludedTooSmall},
		{Pod: "jobs/none", Sandbox: "2", Known: true, Excluded: policy.ExcludedTooSmall},
	})
	for _, want := range []string{"jobs/again (f6ebfdfb71d09) ", "jobs/again (986f512219784) ", "jobs/small ", " 36Ki its stop would give too little back", " 0 its stop would give nothing back"} {
		if !strings.Contains(squeezed(out.String()), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	printPlan(&out, api.CommandAnswer{Plan: &api.DrainPlan{Pods: []api.DrainPod{
		{Pod: "jobs/again", Sandbox: "f6ebfdfb71d09aaaa", Grace: api.Duration(time.Minute)}, {Pod: "jobs/again", Sandbox: "986f512219784bbbb"}, {Pod: "jobs/one", Sandbox: "1"},
	}}})
	for _, want := range []string{"jobs/again (f6ebfdfb71d09) 0 1m stop", "jobs/again (986f512219784) 0 0s stop", "jobs/one 0 "} {
		if !strings.Contains(squeezed(out.String()), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// The command and the flag print the same line.
func TestVersionFlag(t *testing.T) {
	_, command, _ := captured(t, "version")
	if _, flag, _ := captured(t, "--version"); flag != command {
		t.Errorf("--version: %q, version: %q", flag, command)
	}
}
