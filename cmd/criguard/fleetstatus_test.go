package main

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// aFleet has a zone that is partial, one with a taken slot, and members of two versions.
func aFleet() *etcd.Fleet {
	f := &etcd.Fleet{
		Zones: map[string]fleet.Zone{"z1": {Members: 12, Wanting: 7}, "z2": {Members: 5, Wanting: 1}},
		Slots: []etcd.Slot{{Zone: "z2", Holder: etcd.Holder{Node: "n14"}, FreeIn: 7 * time.Second}},
	}
	for range 7 {
		f.Members = append(f.Members, etcd.Member{Zone: "z1", Name: "n1", Digest: "d2", Version: "v2", Pools: []string{"memory"}})
	}
	f.Members = append(f.Members, etcd.Member{Zone: "z1", Name: "n8", Digest: "d2", Version: "v2"},
		etcd.Member{Zone: "z2", Name: "n14", Digest: "d1", Version: "v1", Pools: []string{"memory", "nodefs bytes"}})
	return f
}

func TestFleetStatusText(t *testing.T) {
	st := fleetStatusOf("edge-eu", fleet.DefaultRates(), aFleet())
	st.Node = fleetNode{Node: "n1", Error: "no agent"}
	var out strings.Builder
	printFleetStatus(&out, &st)
	for _, want := range []string{
		"fleet edge-eu this node n1 agent no agent",
		"ZONE STATE NEXT PERMIT WHY z1 partial none 7 of 12 want a soft stop, 58 % ≥ 55 %: partial, 0/s z2 normal in 7s, after n14 1 of 5 want a soft stop, 20 % < 55 %: normal, 0.1/s",
		"CONFIGURATION VERSION WANT A SOFT STOP d2 v2 7 of 8 nodes d1 v1 1 of 1 node",
		"n8 z1 d2 v2 - n14 z2 d1 v1 memory, nodefs bytes",
	} {
		if !strings.Contains(squeezed(out.String()), want) {
			t.Errorf("%s\nhas no %s", out.String(), want)
		}
	}
	if ce, ok := errors.AsType[*codeError](st.verdict()); !ok || ce.code != exitFinding {
		t.Errorf("a partial zone: %v", st.verdict())
	}
}

func TestFleetStatusVerdict(t *testing.T) {
	calm := &etcd.Fleet{Zones: map[string]fleet.Zone{"": {Members: 12}}}
	for name, tt := range map[string]struct {
		change func(f *etcd.Fleet, st *fleetStatus)
		code   int
		says   string
	}{
		"calm":  {func(*etcd.Fleet, *fleetStatus) {}, exitOK, "- normal now 0 of 12"},
		"pause": {func(_ *etcd.Fleet, st *fleetStatus) { st.PausedFor = api.Duration(time.Hour) }, exitFinding, "PAUSED for another 1h"},
		"alone": {func(_ *etcd.Fleet, st *fleetStatus) {
			st.Node.Agent = &agent.Status{AloneFor: api.Duration(6 * time.Minute), Error: "etcd is not reachable", Requests: []agent.Waiting{{
				Pool: policy.PoolMemory, Request: agent.Request{Workload: "shop/web"}, Answer: agent.Answer{State: agent.Denied, Reason: "alone for 6m, soft stops at a tenth", RetryAfter: api.Duration(9 * time.Second)},
			}}}
		}, exitFinding, "ALONE for 6m: etcd is not reachable request memory for shop/web: held, alone for 6m, soft stops at a tenth, asked again in 9s"},
		"lost":   {func(_ *etcd.Fleet, st *fleetStatus) { st.Node.Agent = &agent.Status{PauseLost: true} }, exitFinding, "ALARM a pause is gone"},
		"etcd":   {func(_ *etcd.Fleet, st *fleetStatus) { st.Error = "etcd is not reachable" }, exitUnreachable, "etcd etcd is not reachable"},
		"empty":  {func(_ *etcd.Fleet, st *fleetStatus) { st.Zones = nil }, exitOK, "The fleet has no members: "},
		"unused": {func(_ *etcd.Fleet, st *fleetStatus) { st.Node.Agent = &agent.Status{} }, exitOK, "agent has not reported to the fleet yet"},
	} {
		st := fleetStatusOf("f", fleet.DefaultRates(), calm)
		tt.change(calm, &st)
		var out strings.Builder
		printFleetStatus(&out, &st)
		code := exitOK
		if ce, ok := errors.AsType[*codeError](st.verdict()); ok {
			code = ce.code
		}
		if code != tt.code || !strings.Contains(squeezed(out.String()), tt.says) {
			t.Errorf("%s: exit code %d, %s", name, code, out.String())
		}
	}
	full := fleetStatusOf("f", fleet.DefaultRates(), &etcd.Fleet{Zones: map[string]fleet.Zone{"": {Members: 12, Wanting: 12}}, Settling: true})
	var out strings.Builder
	printFleetStatus(&out, &full)
	if !full.Full || !strings.Contains(out.String(), "ALARM") || !strings.Contains(out.String(), "settling") {
		t.Errorf("a full fleet: %s", out.String())
	}
	for left, want := range map[time.Duration]string{
		etcd.SettlingTTL - 2*time.Minute: "settling for another 1h8m, because", 69 * time.Minute: "ring normal in 4m 1 of 9", time.Hour: "ring normal now 1 of 9",
	} {
		settling := fleetStatusOf("f", fleet.DefaultRates(), &etcd.Fleet{
			Zones: map[string]fleet.Zone{"ring": {Members: 9, Wanting: 1}}, Settling: true, SettlingFor: left,
		})
		var out strings.Builder
		printFleetStatus(&out, &settling)
		if !strings.Contains(squeezed(out.String()), want) {
			t.Errorf("%s left: no %q in %s", left, want, out.String())
		}
	}
}

// serveAgent serves an agent that does not run on a node's socket.
func serveAgent(t *testing.T, dir rundir.Dir) {
	t.Helper()
	a := agent.New(agent.Options{
		Fleet: "f", Node: "n1", Rates: fleet.DefaultRates(), Rand: rand.New(rand.NewPCG(1, 2)), Now: func() time.Duration { return time.Hour },
	})
	l, err := net.Listen("unix", dir.FleetSocket())
	if err != nil {
		t.Fatal(err)
	}
	server := agent.NewServer(a)
	var group sync.WaitGroup
	group.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { _ = server.Close(); group.Wait() })
}

// Without etcd, status shows the node by its agent. The service's metrics are followed by the agent's.
func TestFleetStatusByTheAgent(t *testing.T) {
	dir := runDir(t)
	flags := strings.Fields("--run-dir " + dir + fleetFlag(t, "fleet status"))
	code, out, errs := captured(t, append([]string{"fleet", "status"}, flags...)...)
	if code != exitUnreachable || errs != "" || !strings.Contains(squeezed(out), "agent the fleet's agent does not run: ") {
		t.Errorf("without an agent: exit code %d, %s, %s", code, out, errs)
	}
	hostileService(t, dir, http.StatusOK)
	_, before, _ := captured(t, "metrics", "--run-dir", dir)
	serveAgent(t, rundir.Dir(dir))
	for _, name := range []string{"status", "check"} {
		code, out, errs := captured(t, append([]string{"fleet", name, "-o", "json"}, flags...)...)
		if code != exitUnreachable || errs != "" {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
		for _, wrong := range readJSONDoc(t).Command("fleet "+name, false, []byte(out)) {
			t.Error(wrong)
		}
		if name == "status" {
			var st fleetStatus
			if err := json.Unmarshal([]byte(out), &st); err != nil || st.Node.Agent == nil || st.Node.Agent.Node != "n1" || !strings.Contains(st.Error, "not reachable") {
				t.Errorf("%v, %s", err, out)
			}
		} else if !strings.Contains(out, `"error": "unreachable"`) {
			t.Errorf("check: %s", out)
		}
	}
	code, out, _ = captured(t, "metrics", "--run-dir", dir)
	if code != exitOK || !strings.HasPrefix(out, before) || !strings.Contains(out, "\ncriguard_fleet_connected 0\n") {
		t.Errorf("metrics: exit code %d, %s", code, out)
	}
}

func TestFleetCommandsRefuse(t *testing.T) {
	dir := writeFiles(t, map[string]string{"fleet.toml": fleetNowhere, "bad.toml": "flet = 1\nzone = 7\n"})
	good, bad := filepath.Join(dir, "fleet.toml"), filepath.Join(dir, "bad.toml")
	for _, tt := range []struct{ args, says string }{
		{"pause", "--for is missing: want 2s to 168h"},
		{"pause --for 0s", "--for 0s: want 2s to 168h"},
		{"pause --for 8d", "want 2s to 168h"},
		{"status --cert /c --key /k -c " + good, "--cert and --key have no effect: "},
		{"status --cert /c", "--cert and --key belong together"},
		{"forget", "an argument is missing"},
		{"agent -c " + good, "criguard: systemd passed no socket\nhint: "},
		{"status -r https://10.0.0.1:2379", "the endpoints of etcd are in fleet.toml"},
		{"check --config-dir /etc", "fleet.toml has no drop-ins"},
	} {
		code, _, errs := captured(t, append([]string{"fleet"}, strings.Fields(tt.args)...)...)
		if code != exitUsage || !strings.Contains(errs, tt.says) {
			t.Errorf("%s: exit code %d, %s", tt.args, code, errs)
		}
	}
	for _, name := range []string{"agent", "status", "check", "pause --for 1h", "resume", "forget n1"} {
		code, _, errs := captured(t, append(append([]string{"fleet"}, strings.Fields(name)...), "-c", bad)...)
		if code != exitUsage || !strings.Contains(errs, "bad.toml:1: flet: unknown key") || !strings.Contains(errs, "bad.toml:2: zone = 7: ") || !strings.Contains(errs, "hint: ") {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
	}
}

// A node without fleet.toml is in no fleet, and nothing is wrong with it. A node that is not in the fleet cannot be
// forgotten, and the hint says which can.
func TestNoFleet(t *testing.T) {
	o := fleetOptions{options: &options{}}
	_, _, err := o.loadFleet()
	ce, ok := errors.AsType[*codeError](err)
	if _, missing := os.Stat(fleet.DefaultPath); missing != nil && (!ok || ce.code != exitUsage || !strings.HasPrefix(ce.Error(), "this node is in no fleet: ") || ce.hint != noFleetHint) {
		t.Errorf("%v", err)
	}
	for _, tt := range []struct {
		err  error
		code int
		hint string
	}{
		{&codeError{exitUsage, errors.New("forget n1"), "list"}, exitUsage, "list"}, {etcd.ErrUnreachable, exitUnreachable, "fleet check"}, {etcd.ErrPermission, exitUsage, "roles"},
	} {
		if ce := fleetError(tt.err); ce.code != tt.code || !strings.Contains(ce.hint, tt.hint) {
			t.Errorf("%v: exit code %d, hint %s", tt.err, ce.code, ce.hint)
		}
	}
}

// What a member of etcd says about itself gives warnings, and a finding.
func TestFleetCheckWarns(t *testing.T) {
	for name, tt := range map[string]struct {
		server etcd.Server
		says   string
	}{
		"good":      {etcd.Server{Version: "3.6.16", Size: 1 << 20, Quota: 2 << 30, Revision: 10}, ""},
		"compacted": {etcd.Server{Revision: 1e6, Compacted: true}, ""},
		"history":   {etcd.Server{Revision: 1e6}, "u: never compacted in 1000000 writes: at one write a second it grows by 35 MB a day (hint: --auto-compaction-retention=1h)"},
		"quota":     {etcd.Server{Size: 900 << 20, Quota: 1 << 30}, "u: the database has 900Mi of 1Gi: a full one refuses all permits (hint: compact and defragment it)"},
		"unknown":   {etcd.Server{Size: 1900 << 20}, "u: the database has 1.9Gi of 2Gi: a full one refuses all permits (hint: compact and defragment it)"},
		"slow":      {etcd.Server{RoundTrip: time.Second}, "u: a read took 1s"},
		"alarm":     {etcd.Server{Errors: []string{"memberID:1 alarm:NOSPACE"}}, "u: etcd reports: memberID:1 alarm:NOSPACE"},
	} {
		c := fleetCheck{Endpoints: []fleetEndpoint{{URL: "u"}}}
		c.warn("u", &tt.server)
		if got := strings.Join(c.Warnings, "; "); got != tt.says {
			t.Errorf("%s: %s", name, got)
		}
		if (c.verdict() == nil) != (tt.says == "") {
			t.Errorf("%s: %v", name, c.verdict())
		}
		var out strings.Builder
		printFleetCheck(&out, &c)
		if !strings.Contains(out.String(), tt.says) || tt.says == "" && !strings.Contains(out.String(), "ok: ") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}
