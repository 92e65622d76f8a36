package client

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/client/agenttest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// A soft stop waits for the permit, uses it once, and reports what the pools want.
func TestPermit(t *testing.T) {
	run(t, func(g *guard) {
		g.after(time.Second)
		if got := g.agent.got(http.MethodPut, "/v1/"); len(got) != 1 || got[0].path != "/v1/state" || fmt.Sprint(got[0].body["wants"]) != "[]" ||
			got[0].body["version"] != "v1" || len(fmt.Sprint(got[0].body["digest"])) != 64 || fmt.Sprint(got[0].body["soft"]) != "map[burst:2 every:5m0s]" {
			t.Errorf("without pressure: %v", got)
		}
		g.want[memory] = "u1"
		if _, held := g.pass(); held.By != api.HeldAsking || held.Detail != "waiting for the agent" {
			t.Errorf("the first pass: %+v", held)
		}
		g.wantHeld(time.Second, "zone z1 is partial: 0/s")
		if _, held := g.pass(); held.RetryAfter <= 30*time.Second || held.RetryAfter > 34*time.Second {
			t.Errorf("asked again in %s", held.RetryAfter)
		}
		got := g.agent.got(http.MethodPut, "/v1/")
		if len(got) != 2 || fmt.Sprint(got[0].body["wants"]) != "[memory]" || got[1].path != "/v1/permits/memory/u1" ||
			fmt.Sprint(got[1].body) != "map[kind:soft workload:shop/u1]" {
			t.Errorf("requests: %v", got)
		}
		g.agent.set(g.agent.honest(isPending))
		g.wantHeld(30*time.Second, "the agent asks the fleet")
		if _, held := g.pass(); held.By != api.HeldAsking {
			t.Errorf("held by %+v", held)
		}
		g.agent.set(g.agent.honest(`{"state":"denied","reason":"waiting for the first contact","retry_after":"1s"}`))
		g.after(2 * time.Second)
		if _, held := g.pass(); held.By != api.HeldAsking || held.Detail != fleet.FirstContact {
			t.Errorf("held by %+v", held)
		}
		g.agent.set(g.agent.honest(`{"state":"denied","reason":"next permit in 1s","retry_after":"1s"}`))
		g.after(2 * time.Second)
		if _, held := g.pass(); held.By != api.HeldFleet {
			t.Errorf("held by %+v", held)
		}
		g.agent.set(g.agent.honest(g.agent.isGranted(10 * time.Second)))
		if s, _ := g.after(2 * time.Second); !slices.Equal(s, []string{"u1"}) {
			t.Fatalf("stopped %v", s)
		}
		g.agent.set(g.agent.honest(isDenied))
		g.want[memory] = "u2"
		g.wantHeld(time.Second, "zone z1 is partial: 0/s")
		if got := g.agent.got(http.MethodDelete, "/"); len(got) > 0 {
			t.Errorf("gave back a permit that it used: %v", got)
		}
	})
}

// A request is withdrawn a second after the last pass that asked for it, and a permit that was not used is given back.
func TestWithdraw(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(f *agentFake) string
		change func(g *guard)
	}{
		"denied, then relieved":         {func(*agentFake) string { return isDenied }, func(g *guard) { delete(g.want, memory) }},
		"permitted, then relieved":      {func(f *agentFake) string { return f.isGranted(time.Minute) }, func(g *guard) { delete(g.want, memory) }},
		"permitted, then another pod":   {func(f *agentFake) string { return f.isGranted(time.Minute) }, func(g *guard) { g.want[memory] = "u2" }},
		"permitted, then a hard stop":   {func(f *agentFake) string { return f.isGranted(time.Minute) }, func(g *guard) { g.stopHard("u1") }},
		"permitted, then observe mode":  {func(f *agentFake) string { return f.isGranted(time.Minute) }, func(g *guard) { delete(g.want, memory) }},
		"permitted, then an admission":  {func(f *agentFake) string { return f.isGranted(time.Minute) }, func(g *guard) { g.stopAs("u1", api.KindAdmission) }},
		"permitted, then a stopped u99": {func(f *agentFake) string { return f.isGranted(time.Minute) }, func(g *guard) { g.stopAs("u99", "soft") }},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(g *guard) {
				g.want[memory] = "u1"
				g.pass()
				g.agent.set(g.agent.honest(tt.answer(g.agent)))
				g.noPass(300 * time.Millisecond) // the answer is there, and no pass has seen it
				g.agent.got("", "")
				g.agent.set(g.agent.honest(isDenied))
				tt.change(g)
				if s, _ := g.after(1500 * time.Millisecond); len(s) > 0 {
					t.Fatalf("stopped %v", s)
				}
				if got := g.agent.got(http.MethodDelete, "/"); len(got) != 1 || got[0].path != "/v1/permits/memory/u1" {
					t.Errorf("withdrew %v", got)
				}
			})
		})
	}
}

// noPass lets time pass without a pass.
func (g *guard) noPass(d time.Duration) {
	time.Sleep(d)
}

// stopHard makes the passes stop a pod for a hard threshold, which does not ask.
func (g *guard) stopHard(sandbox string) { g.stopAs(sandbox, policy.Hard.String()) }

func (g *guard) stopAs(sandbox, kind string) {
	delete(g.want, memory)
	g.Observe(&api.Pass{Stop: &api.StopView{Sandbox: sandbox, Kind: kind}})
}

// The pools that want a stop are reported as long as the episode lasts.
func TestEpisodes(t *testing.T) {
	run(t, func(g *guard) {
		wants := func() string {
			if got := g.agent.got(http.MethodPut, "/v1/state"); len(got) > 0 {
				return fmt.Sprint(got[len(got)-1].body["wants"])
			}
			return "nothing reported"
		}
		g.want[memory], g.want[nodefs] = "u1", "u2"
		g.after(time.Second)
		if got := wants(); got != "[memory nodefs bytes]" {
			t.Errorf("wants %s", got)
		}
		delete(g.want, nodefs)
		g.after(119 * time.Second) // the longest grace period and 30 s
		if got := wants(); got != "[memory nodefs bytes]" {
			t.Errorf("during the episode: %s", got)
		}
		g.after(2 * time.Second)
		if got := wants(); got != "[memory]" {
			t.Errorf("after the episode: %s", got)
		}
		g.after(time.Minute)
		if got := wants(); got != "[memory]" {
			t.Errorf("a minute later: %s", got)
		}
	})
}

// A pool has one request. Another pod of the pool waits until passes do not ask for the first any more. A limit counts
// as the node's filesystem.
func TestOneRequestForEachPool(t *testing.T) {
	run(t, func(g *guard) {
		limit := &policy.Stop{Sandbox: "u2", Workload: "ci/job", Kind: policy.Soft, Cause: policy.CauseLimit}
		g.want[nodefs] = "u1"
		g.wantHeld(2*time.Second, "partial")
		if held := g.Permit(limit); held.By != api.HeldFleet || !strings.Contains(held.Detail, "another stop") {
			t.Errorf("held by %+v", held)
		}
		g.agent.got("", "")
		delete(g.want, nodefs)
		for range 6 {
			g.after(250 * time.Millisecond)
			g.Permit(limit)
		}
		g.noPass(time.Millisecond)
		if got := g.agent.got(http.MethodPut, "/v1/permits/"); len(got) != 1 || got[0].path != "/v1/permits/nodefs bytes/u2" || fmt.Sprint(got[0].body) != "map[kind:limit workload:ci/job]" {
			t.Errorf("requests: %v", got)
		}
	})
}

// The stop of a pod above its limit does not keep a threshold of the same pool from asking, as long as its own workload has to wait.
func TestThresholdBesideALimit(t *testing.T) {
	run(t, func(g *guard) {
		limit := &policy.Stop{Sandbox: "u2", Workload: "ci/job", Kind: policy.Soft, Cause: policy.CauseLimit}
		for range 8 {
			g.Permit(limit)
			g.after(250 * time.Millisecond)
		}
		g.agent.got("", "")
		g.want[nodefs] = "u1"
		for range 8 {
			g.after(250 * time.Millisecond)
			if held := g.Permit(limit); !strings.Contains(held.Detail, "another stop") {
				t.Errorf("the limit is held by %+v", held)
			}
		}
		if got := g.agent.got(http.MethodPut, "/v1/permits/"); len(got) != 1 || got[0].path != "/v1/permits/nodefs bytes/u1" {
			t.Errorf("requests: %v", got)
		}
	})
}

// Of several pods above their limits, those whose workloads have to wait do not keep another one from asking, whatever the pause
// between two passes.
func TestLimitsTakeTurns(t *testing.T) {
	for _, pause := range []time.Duration{250 * time.Millisecond, withdrawAfter + time.Millisecond} {
		for waiting := range 4 {
			run(t, func(g *guard) {
				g.agent.set(g.agent.answers(func(c call) string {
					switch {
					case !agenttest.AsksPermit(c.method, c.path):
						return agenttest.State
					case strings.HasSuffix(c.path, "free"):
						return g.agent.isGranted(10 * time.Second)
					}
					return isDenied
				}))
				permit := func(name string) bool {
					return g.Permit(&policy.Stop{Sandbox: name, Workload: "ci/" + name, Kind: policy.Soft, Cause: policy.CauseLimit}).By == ""
				}
				began := g.now()
				for permitted := false; !permitted && g.now()-began < time.Hour; g.noPass(pause) {
					for i := range waiting {
						if permit(fmt.Sprint("waits", i)) {
							t.Fatal("permitted what the agent denies")
						}
					}
					permitted = permit("free")
					g.Observe(&api.Pass{})
				}
				turns := time.Duration(waiting)
				if took := g.now() - began; took < turns*turnEvery || took > turns*(turnEvery+3*time.Second)+3*time.Second {
					t.Errorf("passes every %s, %d wait: permitted after %s", pause, waiting, took)
				}
			})
		}
	}
}

// The static pods of all nodes are one workload: a kubelet appends the node's name.
func TestStaticPodsShareAWorkload(t *testing.T) {
	for host, want := range map[string]string{"edge-1": "shop/web", "Edge-1": "shop/web", "edge-11": "shop/web-edge-1", "": "shop/web-edge-1"} {
		c := New(Options{Dir: rundir.Dir(t.TempDir()), Access: rundir.ForOperators(), Now: func() time.Duration { return time.Hour }, Host: func() (string, error) { return host, nil }})
		if got := c.shared("shop/web-edge-1"); got != want {
			t.Errorf("on %q: %s, want %s", host, got, want)
		}
	}
}

// A stop whose sandbox or workload the agent would refuse is asked for all the same.
func TestStrangeNames(t *testing.T) {
	run(t, func(g *guard) {
		for _, sandbox := range []string{"", ".", "..", "a/../b", "ü%2f?#", strings.Repeat("x", 1000)} {
			g.want[memory] = sandbox
			g.Permit(&policy.Stop{Sandbox: sandbox, Kind: policy.Soft, Workload: strings.Repeat("w", 9000)})
			g.noPass(100 * time.Millisecond)
			got := g.agent.got(http.MethodPut, "/v1/permits/memory/")
			if len(got) != 1 || len(got[0].path) > 200 || len(fmt.Sprint(got[0].body["workload"])) != 64 {
				t.Errorf("%.20q: %v", sandbox, got)
			}
			g.noPass(2 * time.Second)
			g.Observe(&api.Pass{})
			g.noPass(100 * time.Millisecond)
		}
	})
}

// A pass that takes long after it has asked, as for a listing, withdraws nothing. The next one does, unless it asks again.
func TestSlowPass(t *testing.T) {
	run(t, func(g *guard) {
		for range 3 {
			g.Permit(stopFor(memory, "u1"))
			g.noPass(2 * withdrawAfter)
			g.Observe(&api.Pass{})
			g.noPass(100 * time.Millisecond)
			if got := g.agent.got(http.MethodDelete, ""); len(got) > 0 {
				t.Errorf("withdrawn: %v", got)
			}
		}
		g.Observe(&api.Pass{})
		g.noPass(100 * time.Millisecond)
		if got := g.agent.got(http.MethodDelete, ""); len(got) != 1 {
			t.Errorf("withdrawn: %v", got)
		}
	})
}

// A reload changes the budget, the digest and whether the fleet is asked at all.
func TestConfigure(t *testing.T) {
	run(t, func(g *guard) {
		g.want[memory] = "u1"
		g.wantHeld(time.Second, "partial")
		before := g.agent.got(http.MethodPut, "/v1/state")
		g.Configure(configtest.Parse(t, inFleet+"[backoff]\nmax = '6m'\n"))
		g.wantHeld(time.Second, "partial")
		after := g.agent.got(http.MethodPut, "/v1/state")
		if len(before) == 0 || len(after) != 1 || before[0].body["digest"] == after[0].body["digest"] || fmt.Sprint(after[0].body["wants"]) != "[memory]" {
			t.Errorf("before %v, after %v", before, after)
		}
		g.Configure(configtest.Parse(t, ""))
		if s, held := g.pass(); s != "u1" {
			t.Errorf("held by %+v", held)
		}
		g.after(10 * time.Minute)
		if got := g.agent.got(http.MethodPut, "/"); len(got) > 0 {
			t.Errorf("without a fleet: %v", got)
		}
		g.want[memory] = "u2"
		g.Configure(enabled(t))
		g.wantHeld(time.Second, "partial")
	})
}

// After a restart of the service, the episode goes on, and so does being alone. After a restart of the node, both begin
// again.
func TestRestart(t *testing.T) {
	for _, boot := range []string{"boot", "another"} {
		t.Run(boot, func(t *testing.T) {
			run(t, func(g *guard) {
				g.agent.set(nil)
				g.want[memory] = "u1"
				g.wantHeld(time.Minute, "alone")
				g.stop()
				g.start(boot, enabled(t))
				if boot == "another" {
					g.wantHeld(time.Second, "does not answer")
					return
				}
				g.wantHeld(80*time.Second, "alone for")
				g.agent.set(g.agent.honest(isDenied))
				g.wantHeld(3*time.Minute, "partial")
				g.stop()
				g.agent.got("", "")
				g.start(boot, enabled(t))
				g.noPass(time.Minute) // the grace period runs again
				if got := g.agent.got(http.MethodPut, "/v1/state"); len(got) == 0 || fmt.Sprint(got[0].body["wants"]) != "[memory]" {
					t.Errorf("after a restart: %v", got)
				}
			})
		})
	}
}

// A token that was taken stays taken, however soon after it the service ends.
func TestRestartAfterAToken(t *testing.T) {
	run(t, func(g *guard) {
		g.agent.set(nil)
		g.want[memory] = "u1"
		for s, _ := g.pass(); s == ""; s, _ = g.pass() {
			time.Sleep(250 * time.Millisecond)
			synctest.Wait()
		}
		g.stop()
		g.start("boot", enabled(t))
		g.want[memory] = "u2"
		g.wantHeld(time.Minute, "alone for")
	})
}

// A state file that cannot be read means a start from the beginning.
func TestMalformedState(t *testing.T) {
	for _, text := range []string{"", "{", `{"boot_id":"boot","fleet":{"Held":{"heat":1}}}`, `{"boot_id":"boot","fleet":{"AloneSince":9000000000000000000}}`, `{"boot_id":"other","fleet":{"AloneSince":1}}`} {
		run(t, func(g *guard) {
			g.stop()
			if err := g.opt.Access.Replace(string(g.dir), stateFile, []byte(text), false); err != nil {
				t.Fatal(err)
			}
			g.start("boot", enabled(t))
			g.want[memory] = "u1"
			g.wantHeld(time.Second, "partial")
		})
	}
}

// Whatever the state file has, the client decides about a stop.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"boot_id":"boot","fleet":{"Held":{"memory":0},"AloneSince":1000000000,"Paused":0,"Trickle":{"On":true,"First":5},"Local":{"On":false,"First":0}}}`))
	f.Add([]byte(`{"boot_id":"boot","fleet":{"AloneSince":-9223372036854775808,"Local":{"On":true,"First":-9223372036854775808}}}`))
	cfg, err := config.Parse("test", strings.NewReader(inFleet))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, state []byte) {
		now := time.Hour
		c := New(Options{Config: cfg, Dir: "/nonexistent", BootID: "boot", Log: slog.New(slog.DiscardHandler), Rand: rand.New(rand.NewPCG(1, 2)), Now: func() time.Duration { return now }})
		c.restore(state)
		for range 100 {
			if held := c.Permit(stopFor(memory, "u1")); held.By == "" {
				c.Observe(&api.Pass{Stop: &api.StopView{Sandbox: "u1", Kind: "soft"}})
			} else if held.Detail == "" || held.RetryAfter < 0 {
				t.Errorf("held by %+v", held)
			}
			now += time.Minute
		}
	})
}

// A node without a fleet connects to nothing and writes nothing.
func TestDisabled(t *testing.T) {
	run(t, func(g *guard) {
		g.stop()
		g.dir += "/other"
		g.agent.set(func(net.Conn) { t.Error("connected") })
		g.start("boot", configtest.Parse(t, ""))
		g.want[memory], g.want[pids] = "u1", "u2"
		if s, _ := g.after(time.Hour); !slices.Equal(s, []string{"u1", "u2"}) {
			t.Errorf("stopped %v", s)
		}
		if _, err := g.dir.ReadFile(stateFile, g.opt.Access); err == nil || len(g.Warnings()) > 0 {
			t.Errorf("state: %v, warnings %v", err, g.Warnings())
		}
	})
}

// BenchmarkPermit is the cost that the fleet adds to a pass that wants a soft stop.
func BenchmarkPermit(b *testing.B) {
	cfg, err := config.Parse("test", strings.NewReader(inFleet))
	if err != nil {
		b.Fatal(err)
	}
	now := time.Hour
	c := New(Options{Config: cfg, Dir: rundir.Dir(b.TempDir()), Log: slog.New(slog.DiscardHandler), Now: func() time.Duration { return now }})
	stop := stopFor(memory, "u1")
	b.ReportAllocs()
	for b.Loop() {
		if c.Permit(stop).By == "" {
			b.Fatal("permitted")
		}
		c.Observe(&api.Pass{})
	}
}
