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
