package fleetcmd

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }

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

func TestStatusText(t *testing.T) {
	st := statusOf("edge-eu", fleet.DefaultRates(), aFleet())
	st.Node = nodeStatus{Node: "n1", Error: "no agent"}
	var out strings.Builder
	printStatus(&out, &st)
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
	if ce, ok := errors.AsType[*cli.Error](st.verdict()); !ok || ce.Code != cli.ExitFinding {
		t.Errorf("a partial zone: %v", st.verdict())
	}
}

func TestStatusVerdict(t *testing.T) {
	calm := &etcd.Fleet{Zones: map[string]fleet.Zone{"": {Members: 12}}}
	for name, tt := range map[string]struct {
		change func(f *etcd.Fleet, st *Status)
		code   int
		says   string
	}{
		"calm":  {func(*etcd.Fleet, *Status) {}, cli.ExitOK, "- normal now 0 of 12"},
		"pause": {func(_ *etcd.Fleet, st *Status) { st.PausedFor = api.Duration(time.Hour) }, cli.ExitFinding, "PAUSED for another 1h"},
		"alone": {func(_ *etcd.Fleet, st *Status) {
			st.Node.Agent = &agent.Status{AloneFor: api.Duration(6 * time.Minute), Error: "etcd is not reachable", Requests: []agent.Waiting{{
				Pool: policy.PoolMemory, Request: agent.Request{Workload: "shop/web"}, Answer: agent.Answer{State: agent.Denied, Reason: "alone for 6m, soft stops at a tenth", RetryAfter: api.Duration(9 * time.Second)},
			}}}
		}, cli.ExitFinding, "ALONE for 6m: etcd is not reachable request memory for shop/web: held, alone for 6m, soft stops at a tenth, asked again in 9s"},
		"down":   {func(_ *etcd.Fleet, st *Status) { st.Node = nodeStatus{Error: "does not run", down: true} }, cli.ExitFinding, "agent does not run"},
		"lost":   {func(_ *etcd.Fleet, st *Status) { st.Node.Agent = &agent.Status{PauseLost: true} }, cli.ExitFinding, "ALARM a pause is gone"},
		"clone":  {func(_ *etcd.Fleet, st *Status) { st.Node.Agent = &agent.Status{NameTaken: true} }, cli.ExitFinding, "ALARM another agent reports under this name (machines were cloned"},
		"etcd":   {func(_ *etcd.Fleet, st *Status) { st.Error = "etcd is not reachable" }, cli.ExitUnreachable, "etcd etcd is not reachable"},
		"empty":  {func(_ *etcd.Fleet, st *Status) { st.Zones = nil }, cli.ExitOK, "The fleet has no members: "},
		"unused": {func(_ *etcd.Fleet, st *Status) { st.Node.Agent = &agent.Status{} }, cli.ExitOK, "agent has not reported to the fleet yet"},
	} {
		st := statusOf("f", fleet.DefaultRates(), calm)
		tt.change(calm, &st)
		var out strings.Builder
		printStatus(&out, &st)
		code := cli.ExitOK
		if ce, ok := errors.AsType[*cli.Error](st.verdict()); ok {
			code = ce.Code
		}
		if code != tt.code || !strings.Contains(squeezed(out.String()), tt.says) {
			t.Errorf("%s: exit code %d, %s", name, code, out.String())
		}
	}
	for _, settling := range []bool{false, true} { // one that settles permits stops, at a low rate
		full := statusOf("f", fleet.DefaultRates(), &etcd.Fleet{Zones: map[string]fleet.Zone{"": {Members: 12, Wanting: 12}}, Settling: settling})
		var out strings.Builder
		printStatus(&out, &full)
		if full.Full == settling || strings.Contains(out.String(), "ALARM") == settling || strings.Contains(out.String(), "settling") != settling {
			t.Errorf("a full fleet: %s", out.String())
		}
	}
	for left, want := range map[time.Duration]string{
		etcd.SettlingTTL - 2*time.Minute: "settling for another 1h8m, because", 69 * time.Minute: "ring normal in 4m 1 of 9", time.Hour: "ring normal now 1 of 9",
	} {
		settling := statusOf("f", fleet.DefaultRates(), &etcd.Fleet{
			Zones: map[string]fleet.Zone{"ring": {Members: 9, Wanting: 1}}, Settling: true, SettlingFor: left, SettlingTime: etcd.SettlingTTL,
		})
		var out strings.Builder
		printStatus(&out, &settling)
		if !strings.Contains(squeezed(out.String()), want) {
			t.Errorf("%s left: no %q in %s", left, want, out.String())
		}
	}
}

// A node without fleet.toml is in no fleet, and nothing is wrong with it. A node that is not in the fleet cannot be
// forgotten, and the hint says which can.
func TestNoFleet(t *testing.T) {
	_, _, err := (&options{}).load()
	ce, ok := errors.AsType[*cli.Error](err)
	if _, missing := os.Stat(fleet.DefaultPath); missing != nil && (!ok || ce.Code != cli.ExitUsage || !strings.HasPrefix(ce.Error(), "this node is in no fleet: ") || ce.Hint != noFleetHint) {
		t.Errorf("%v", err)
	}
	for _, tt := range []struct {
		err  error
		code int
		hint string
	}{
		{cli.NewError(cli.ExitUsage, errors.New("forget n1"), "list"), cli.ExitUsage, "list"}, {etcd.ErrUnreachable, cli.ExitUnreachable, "fleet check"}, {etcd.ErrPermission, cli.ExitUsage, "roles"},
	} {
		if ce := errorOf(tt.err); ce.Code != tt.code || !strings.Contains(ce.Hint, tt.hint) {
			t.Errorf("%v: exit code %d, hint %s", tt.err, ce.Code, ce.Hint)
		}
	}
}

// What a member of etcd says about itself gives warnings, and a finding.
func TestCheckWarns(t *testing.T) {
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
		c := Check{Endpoints: []endpointCheck{{URL: "u"}}}
		c.warn("u", &tt.server)
		if got := strings.Join(c.Warnings, "; "); got != tt.says {
			t.Errorf("%s: %s", name, got)
		}
		if (c.verdict() == nil) != (tt.says == "") {
			t.Errorf("%s: %v", name, c.verdict())
		}
		var out strings.Builder
		printCheck(&out, &c)
		if !strings.Contains(out.String(), tt.says) || tt.says == "" && !strings.Contains(out.String(), "ok: ") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

// Endpoints of two clusters do not share the slots.
func TestCheckComparesClusters(t *testing.T) {
	c := Check{Endpoints: []endpointCheck{{URL: "a", Error: "unreachable"}, {URL: "b", cluster: 1}, {URL: "c", cluster: 1}, {URL: "d", cluster: 2}}}
	c.compareClusters()
	if len(c.Errors) != 1 || !strings.HasPrefix(c.Errors[0], "d: it is in another cluster than b, ") {
		t.Errorf("%q", c.Errors)
	}
	if c.verdict() == nil {
		t.Error("no finding")
	}
}

// That an agent does not run is a finding on a node, but not on an operator's machine.
func TestStatusWithoutAgent(t *testing.T) {
	for _, cert := range []string{"", "operator.pem"} {
		o := &options{Options: Options{Dir: func() rundir.Dir { return rundir.Dir(t.TempDir()) }}, cert: cert}
		if n := o.node(t.Context(), "n1"); n.Agent != nil || n.Node != "n1" || n.Error == "" || n.down != (cert == "") {
			t.Errorf("with --cert %q: %+v", cert, n)
		}
	}
}
