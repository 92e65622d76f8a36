package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// script answers commands with a plan or an answer, and each other request by its path.
func script(t *testing.T, plan api.DrainPlan, answers map[string]func(n int32) any) (dir string) {
	t.Helper()
	var asked atomic.Int32
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/command" {
			_ = json.NewEncoder(w).Encode(api.CommandAnswer{APIVersion: api.APIVersion, Message: "stopping", Pass: 7, Plan: &plan})
			return
		}
		v := answers[r.URL.Path](asked.Add(1))
		if v == nil {
			panic(http.ErrAbortHandler) // as a service that ends
		}
		_ = json.NewEncoder(w).Encode(v)
	})
}

// A drain prints what it does even without a terminal, and its JSON is the plan at its end.
func TestDrainOutput(t *testing.T) {
	plan := api.DrainPlan{Draining: true, Left: 1, Pods: []api.DrainPod{{Pod: "default/a", Sandbox: "a"}, {Pod: "kube-system/etcd", Sandbox: "etcd", Stays: "static pod"}}}
	dir := script(t, plan, map[string]func(int32) any{"/v1/drain": func(int32) any { return api.DrainPlan{Draining: true, Pods: plan.Pods[1:]} }})
	if code, out, errs := captured(t, "drain", "--run-dir", dir); code != cli.ExitOK || !strings.Contains(out, "stays: static pod") || !strings.HasSuffix(out, "drained\n") {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
	code, out, errs := captured(t, "drain", "-o", "json", "--run-dir", dir)
	var a api.CommandAnswer
	if err := json.Unmarshal([]byte(out), &a); err != nil || code != cli.ExitOK || a.Message != "drained" || a.Plan.Left != 0 || len(a.Plan.Pods) != 1 {
		t.Errorf("exit code %d, %v, %s\n%s", code, err, errs, out)
	}
	dir = script(t, plan, map[string]func(int32) any{"/v1/drain": func(int32) any { return nil }})
	if code, _, errs := captured(t, "drain", "--timeout", "0s", "--run-dir", dir); code != cli.ExitFinding || !strings.Contains(errs, "not drained yet: default/a") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	// A kubelet has started the pod again.
	again := api.DrainPlan{Draining: true, Left: 1, Pods: []api.DrainPod{{Pod: "default/a", Sandbox: "a2"}, plan.Pods[1]}}
	dir = script(t, plan, map[string]func(int32) any{"/v1/drain": func(int32) any { return again }})
	if code, out, errs := captured(t, "drain", "--run-dir", dir); code != cli.ExitOK || !strings.HasSuffix(out, "drained; 1 pod started meanwhile: criguard stops new ones until undrain\n") {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
}

// A service that does not come back while a command waits for it is an error of its own: nothing continues the drain. One that
// answers at the end of the time continues it.
func TestWaitForAServiceThatStaysAway(t *testing.T) {
	for _, c := range []struct {
		back time.Duration // 0 = never
		code int
		want string
	}{{0, cli.ExitUnreachable, "gave up waiting: "}, {30 * time.Second, cli.ExitFinding, "late"}} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := (&stopFlags{timeout: time.Minute}).wait(t.Context(), time.Second, func(context.Context) (bool, error) {
				if c.back > 0 && time.Since(began) >= c.back {
					return false, nil
				}
				return false, fmt.Errorf("ask: %w", control.ErrNoService)
			}, func() error { return cli.NewError(cli.ExitFinding, errors.New("late"), "") })
			if took := time.Since(began); err == nil || codeOf(err).Code != c.code || !strings.HasPrefix(err.Error(), c.want) || took != time.Minute {
				t.Errorf("back after %s: %v after %s", c.back, err, took)
			}
		})
	}
}

// A drain and a stop that the service would refuse are refused before the user is asked; a dry run shows the plan.
func TestRefusedBeforeConsent(t *testing.T) {
	var ordered atomic.Bool
	dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var c api.Command
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil || !c.DryRun {
			ordered.Store(true)
		}
		_ = json.NewEncoder(w).Encode(api.CommandAnswer{Message: "would stop 1 pod", Refused: "criguard is paused", Plan: &api.DrainPlan{Left: 1, Pods: []api.DrainPod{{Pod: "d/a"}}}})
	})
	for _, args := range [][]string{{"drain"}, {"stop", "d/a"}} {
		code, out, errs := captured(t, append(args, "--run-dir", dir)...)
		if code != cli.ExitUsage || out != "" || !strings.HasPrefix(errs, "criguard: refused: criguard is paused\nhint: ") || ordered.Load() {
			t.Errorf("%v: exit code %d, stdout %q, stderr %q, ordered %t", args, code, out, errs, ordered.Load())
		}
		if code, out, errs := captured(t, append(args, "-n", "--run-dir", dir)...); code != cli.ExitOK || !strings.Contains(out, "would stop 1 pod") || errs != "note: refused now: criguard is paused\n" {
			t.Errorf("%v -n: exit code %d, %s, %s", args, code, out, errs)
		}
	}
}

// The JSON of a stop has its result. A service that ends during a stop and does not know of it afterwards
// ends the wait.
func TestStopOutput(t *testing.T) {
	plan := api.DrainPlan{Pods: []api.DrainPod{{Pod: "default/a", Sandbox: "s1"}}}
	list := api.HistoryList{Passes: []api.Pass{{ID: 7, Settled: []api.StopView{{Pass: 7, Pod: "default/a", Result: &api.StopResult{Emptied: true, Method: "runtime"}}}}}}
	dir := script(t, plan, map[string]func(int32) any{"/v1/history": func(n int32) any {
		if n == 1 {
			return nil
		}
		return list
	}})
	code, out, errs := captured(t, "stop", "default/a", "-o", "json", "--run-dir", dir)
	var a api.CommandAnswer
	if err := json.Unmarshal([]byte(out), &a); err != nil || code != cli.ExitOK || a.Stop == nil || !a.Stop.Result.Emptied || !strings.Contains(a.Message, "stopped") {
		t.Errorf("exit code %d, %v, %s\n%s", code, err, errs, out)
	}
	dir = script(t, plan, map[string]func(int32) any{"/v1/history": func(n int32) any {
		switch n {
		case 1:
			return nil
		case 2:
			return api.HistoryList{Passes: []api.Pass{{ID: 7}}}
		}
		return list
	}})
	if code, _, errs := captured(t, "stop", "default/a", "--run-dir", dir); code != cli.ExitOK {
		t.Errorf("of a stop that the next run continues: exit code %d, %s", code, errs)
	}
	dir = script(t, plan, map[string]func(int32) any{"/v1/history": func(n int32) any {
		if n == 2 {
			return nil
		}
		return api.HistoryList{}
	}})
	if code, _, errs := captured(t, "stop", "default/a", "--run-dir", dir); code != cli.ExitFinding || !strings.Contains(errs, "has restarted during the stop") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// JSON is a single value, also if --until is not reached.
func TestPruneUntilJSON(t *testing.T) {
	dir := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"reports":[{"step":"images","target":true,"met":false}],"done":true}`+"\n")
	})
	code, out, errs := captured(t, "prune", "--until", "imagefs.available=99%", "-o", "json", "--run-dir", dir)
	d := json.NewDecoder(strings.NewReader(out))
	if err := d.Decode(new(api.PruneResult)); err != nil || d.More() || code != cli.ExitFinding || errs != "" {
		t.Errorf("exit code %d, %v, %q\n%s", code, err, errs, out)
	}
	if code, _, errs := captured(t, "prune", "--until", "imagefs.available=99%", "--run-dir", dir); code != cli.ExitFinding || !strings.Contains(errs, "is not reached") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

// --endpoint of another runtime than the service's does not ask the service.
func TestEndpointOfAnotherRuntime(t *testing.T) {
	sockets := t.TempDir()
	direct, linked, other := filepath.Join(sockets, "run", "service.sock"), filepath.Join(sockets, "var", "service.sock"), filepath.Join(sockets, "other.sock")
	if err := errors.Join(os.Mkdir(filepath.Dir(direct), 0o700), os.WriteFile(direct, nil, 0o600), os.WriteFile(other, nil, 0o600), os.Symlink("run", filepath.Dir(linked))); err != nil {
		t.Fatal(err)
	}
	dir := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		st := pressed()
		st.Live, st.Runtime.Up, st.Runtime.Endpoint = true, true, direct
		_ = json.NewEncoder(w).Encode(st)
	})
	for endpoint, live := range map[string]bool{"unix://" + direct: true, linked: true, other: false, "/run/none.sock": false} {
		_, out, errs := captured(t, "status", "-o", "json", "--run-dir", dir, "--endpoint", endpoint)
		var st api.Status
		if err := json.Unmarshal([]byte(out), &st); err != nil || st.Live != live {
			t.Errorf("%s: %v, live %t, %s", endpoint, err, st.Live, errs)
		}
	}
}

// A prune that ends after a part prints as JSON what it removed, and why it ended.
func TestPruneEndsEarlyJSON(t *testing.T) {
	dir := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"reports":[{"step":"images","removed":[{"kind":"image","id":"a"}],"freed":3}],"error":"the runtime went away","no_runtime":true,"done":true}`+"\n")
	})
	code, out, errs := captured(t, "prune", "--yes", "-o", "json", "--run-dir", dir)
	var got api.PruneResult
	d := json.NewDecoder(strings.NewReader(out))
	if err := d.Decode(&got); err != nil || d.More() || code != cli.ExitUnreachable || errs != "" || got.Error != "the runtime went away" || got.Freed != 3 {
		t.Errorf("exit code %d, %v, %q\n%s", code, err, errs, out)
	}
}

// A service answers with its own configuration: a command that names another one says so, except in JSON and --quiet.
func TestUnusedConfiguration(t *testing.T) {
	file := writeFiles(t, map[string]string{"same.toml": "# the defaults\n", "other.toml": "mode = 'observe'\n"})
	same, err := config.Load(file + "/same.toml")
	if err != nil {
		t.Fatal(err)
	}
	dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"/v1/status": pressed(), "/v1/rank": api.Ranking{}, "/v1/images": reclaim.ImageList{}, "/v1/config": api.Settings{Text: same.Effective()},
			"/v1/prune": map[string]any{"reports": []reclaim.Report{{}}, "done": true}, "/v1/command": api.CommandAnswer{},
		}[r.URL.Path])
	})
	for _, c := range []struct {
		args  string
		notes bool
	}{
		{"status", true}, {"rank", true}, {"images", true}, {"prune", true}, {"reload", true}, {"status -q", false}, {"rank -o json", false},
	} {
		for flags, other := range map[string]bool{"": false, "--config " + file + "/same.toml": false, "--config " + file + "/other.toml": true, "--config-dir " + file: true} {
			_, out, errs := captured(t, append(strings.Fields(c.args+" "+flags), "--run-dir", dir)...)
			if note := "note: a service answers, with its own configuration; --config and --config-dir are not used"; strings.Contains(errs, note) != (c.notes && other) {
				t.Errorf("%s %s: stderr %q, stdout\n%s", c.args, flags, errs, out)
			}
		}
	}
}

// While no disk is short, a user who may not look at the node learns why a ranking of disk usage is empty.
func TestUnmeasuredRanking(t *testing.T) {
	dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"/v1/rank":   api.Ranking{Signal: policy.NodeFSAvailable, Pods: []api.RankedView{{Pod: "d/a"}}},
			"/v1/config": api.Settings{Text: "[node]\nproc = '/none'\n"},
		}[r.URL.Path])
	})
	for output, notes := range map[string]bool{"table": true, "json": false} {
		code, out, errs := captured(t, "rank", "-s", "nodefs.available", "-o", output, "--run-dir", dir)
		if code != cli.ExitOK || !strings.Contains(out, "d/a") || strings.Contains(errs, "note: the service measures the pods' disk usage only while a disk is short, and measuring it directly failed: ") != notes {
			t.Errorf("%s: exit code %d, stderr %q, stdout\n%s", output, code, errs, out)
		}
	}
}

// The disk usage that the service has not measured is ranked by the configuration in force, which may differ from the files.
func TestRankingIsMeasuredAsServed(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	pod := srv.AddPod(critest.PodSpec{Name: "a", Namespace: "d", UID: "u1", Containers: []critest.ContainerSpec{{}}})
	text := nodetest.Config(t, "runtime.endpoint = '"+srv.Endpoint()+"'\n[[protect]]\nname = 'a'\n")
	cfg := configtest.Parse(t, text)
	nodetest.Write(t, cfg.Node.RootDir, map[string]string{filepath.Join("pods", pod.UID, "volumes/kubernetes.io~empty-dir/data/file"): strings.Repeat("x", 5<<20)})
	dir := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"/v1/rank": api.Ranking{Signal: policy.NodeFSAvailable, Pods: []api.RankedView{{Pod: "d/a"}}}, "/v1/config": api.Settings{Text: cfg.Effective()},
		}[r.URL.Path])
	})
	_, out, errs := captured(t, "rank", "-s", "nodefs.available", "-o", "json", "--run-dir", dir)
	var r api.Ranking
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Pods) != 1 || r.Pods[0].Usage < 5<<20 || !strings.Contains(r.Pods[0].Excluded, "protect") {
		t.Errorf("%v, %q: %s", err, errs, out)
	}
}

// A failed command prints its error as JSON only if its flags ask for JSON.
func TestErrorAsJSON(t *testing.T) {
	for _, c := range []struct {
		args []string
		json bool
	}{
		{[]string{"pause", "-o", "json"}, true},
		{[]string{"pause", "--for", "x", "--output=json"}, true},
		{[]string{"pause", "--reason", "use -o json next time"}, false},
		{[]string{"pause", "-o", "table", "--reason", "-ojson"}, false},
	} {
		_, out, errs := captured(t, append(c.args, "--run-dir", runDir(t))...)
		if json.Valid([]byte(out)) != c.json || (errs == "") != c.json || strings.Count(out, "\n") > 1 {
			t.Errorf("%q: %q, %q", c.args, out, errs)
		}
	}
}

// A check that could not look at the node says so, but not with --quiet.
func TestCheckOfAnUnreadableNode(t *testing.T) {
	file := writeFiles(t, map[string]string{"config.toml": "[node]\nsys = '/nonexistent'\nproc = '/nonexistent'\n"}) + "/config.toml"
	const note = "the node was not checked"
	for _, c := range []struct {
		args      []string
		out, errs bool
	}{{nil, false, true}, {[]string{"-q"}, false, false}, {[]string{"-o", "json"}, true, false}} {
		code, out, errs := captured(t, append([]string{"check", file}, c.args...)...)
		if code != cli.ExitOK || strings.Contains(out, note) != c.out || strings.Contains(errs, note) != c.errs {
			t.Errorf("%q: exit code %d, %q\n%s", c.args, code, errs, out)
		}
	}
	if code, _, errs := captured(t, "check", file, "--endpoint", "tcp://x"); code != cli.ExitUsage || !strings.Contains(errs, "want unix:///path") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}
