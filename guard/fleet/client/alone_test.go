package client

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/fleet/client/agenttest"
	"github.com/criguard/criguard/policy"
)

// bad returns agents that give no valid answer. nil is none at all.
func bad() map[string]func(net.Conn) {
	agents := map[string]func(net.Conn){"missing": nil}
	for _, some := range []map[string]func(net.Conn){agenttest.Hangs(), agenttest.Floods(), agenttest.Failures()} {
		maps.Copy(agents, some)
	}
	return agents
}

// An agent that gives no valid answer leaves the node alone: gentle stops are held for 2 minutes, then made at a tenth of
// the local budget, which starts empty, and after 15 minutes at the local budget. No pass waits.
func TestAgentThatDoesNotAnswer(t *testing.T) {
	for name, serve := range bad() {
		t.Run(name, func(t *testing.T) { run(t, func(g *guard) { g.agent.set(serve); g.wantAlone() }) })
	}
}

// wantAlone fails the test unless the node becomes alone and follows the rules.
func (g *guard) wantAlone() {
	g.Helper()
	g.after(10 * time.Second) // the report without pressure fails
	g.want[memory] = "u1"
	g.after(20 * time.Second)
	g.wantHeld(90*time.Second, "alone")
	if w := g.Warnings(); len(w) != 1 || len(w[0]) > 500 {
		g.Errorf("warnings %.1000q", w)
	}
	if n := strings.Count(g.log.String(), "fleet agent unavailable"); n != 1 {
		g.Errorf("%d lines of log: %.1000s", n, g.log)
	}
	g.wantHeld(time.Minute, "soft stops at a tenth")
	stops := 0
	count := func(d time.Duration) int {
		for end := g.now() + d; g.now() < end; {
			g.want[memory] = fmt.Sprint("u", g.now())
			s, _ := g.after(2 * time.Second)
			stops += len(s)
		}
		n := stops
		stops = 0
		return n
	}
	if n := count(12 * time.Minute); n > 1 {
		g.Errorf("%d stops in 15 minutes", n)
	}
	if n := count(30 * time.Minute); n < 4 || n > 7 {
		g.Errorf("%d stops in the next half hour", n)
	}
	g.agent.set(g.agent.honest(isDenied))
	g.want[memory] = "u2"
	g.after(3 * time.Minute)
	delete(g.want, memory)
	g.after(2 * time.Second)
	g.want[memory] = "u3"
	g.wantHeld(10*time.Minute, "partial")
	if w := g.Warnings(); len(w) != 0 || strings.Count(g.log.String(), "answers again") != 1 {
		g.Errorf("warnings %q, log %s", w, g.log)
	}
}

// An agent that has been asking the fleet for a minute hangs. It counts again as soon as it decides.
func TestAgentThatNeverDecides(t *testing.T) {
	run(t, func(g *guard) {
		g.agent.set(g.agent.honest(isPending))
		g.want[memory] = "u1"
		g.wantHeld(59*time.Second, "asks the fleet")
		g.after(20 * time.Second)
		g.wantHeld(time.Minute, "alone")
		g.agent.set(g.agent.honest(isDenied))
		g.after(3 * time.Minute)
		g.wantHeld(time.Second, "partial")
	})
}

// A permit that the agent gave before it ended is used.
func TestPermitOutlivesTheAgent(t *testing.T) {
	run(t, func(g *guard) {
		g.agent.set(g.agent.honest(g.agent.isGranted(50 * time.Second)))
		g.want[memory] = "u1"
		g.pass()
		g.noPass(time.Second)
		g.agent.set(nil)
		if s, held := g.pass(); s != "u1" {
			t.Errorf("held by %+v", held)
		}
	})
}

// A pause holds without the agent, until its end.
func TestPauseOutlivesTheAgent(t *testing.T) {
	for name, resumed := range map[string]bool{"agent away": false, "resumed": true} {
		t.Run(name, func(t *testing.T) {
			run(t, func(g *guard) {
				end := g.now() + time.Hour
				g.agent.set(g.agent.answers(func(c call) string {
					if agenttest.AsksPermit(c.method, c.path) {
						return isDenied
					}
					return fmt.Sprintf(`{"paused_for":%q}`, max(end-g.now(), 0))
				}))
				g.want[memory] = "u1"
				g.after(2 * time.Minute)
				if resumed {
					end = 0
					g.after(2 * time.Minute)
				}
				g.agent.set(nil)
				g.after(time.Minute)
				g.stop()
				g.start("boot", enabled(t))
				if s, held := g.after(40 * time.Minute); resumed {
					if len(s) == 0 {
						t.Errorf("resumed: held by %+v", held)
					}
					return
				} else if len(s) > 0 || held.Detail != "soft stops are paused" {
					t.Errorf("stopped %v, held by %+v", s, held)
				}
				if s, held := g.after(25 * time.Minute); len(s) == 0 {
					t.Errorf("after the pause: held by %+v", held)
				}
			})
		})
	}
}

// An agent may pause for a week at most, as operators.
func TestParsePaused(t *testing.T) {
	for body, want := range map[string]time.Duration{
		`{"paused_for":"1h"}`: time.Hour, `{"paused_for":"1000h"}`: 168 * time.Hour, `{"paused_for":"-1h"}`: 0, `{}`: 0, `[]`: 0,
	} {
		if got := parsePaused([]byte(body)); got != want {
			t.Errorf("%s: %s", body, got)
		}
	}
}

// A short absence of the agent, as at an upgrade, is not being alone.
func TestAgentRestarts(t *testing.T) {
	run(t, func(g *guard) {
		g.want[memory] = "u1"
		g.wantHeld(time.Minute, "partial")
		for range 10 {
			g.agent.set(nil)
			g.wantHeld(12*time.Second, "")
			g.agent.set(g.agent.honest(isDenied))
			g.wantHeld(40*time.Second, "partial")
		}
		if text := g.log.String(); text != "" {
			t.Errorf("logged %s", text)
		}
	})
}

// The agent cannot make the guard keep a permit, ask too often or too rarely, or print what it likes.
func TestAgentThatLies(t *testing.T) {
	answers := agenttest.Grants()
	maps.Copy(answers, agenttest.Denials())
	for name, tt := range map[string]struct {
		stopped bool
		asks    [2]int // least and most requests in a minute
	}{
		"permit for ever":           {true, [2]int{1, 1}},
		"permit in the past":        {false, [2]int{50, 70}},
		"permit before the boot":    {false, [2]int{50, 70}},
		"permit without a deadline": {false, [2]int{50, 70}},
		"denied for ever":           {false, [2]int{2, 3}},
		"denied, asked again now":   {false, [2]int{50, 70}},
		"escapes":                   {false, [2]int{2, 3}},
		"unknown fields":            {false, [2]int{2, 3}},
	} {
		answer := answers[name]
		delete(answers, name)
		t.Run(name, func(t *testing.T) {
			run(t, func(g *guard) {
				g.agent.set(g.agent.honest(answer))
				g.want[memory] = "u1"
				s, held := g.after(time.Minute)
				if asks := len(g.agent.got(http.MethodPut, "/v1/permits")); asks < tt.asks[0] || asks > tt.asks[1] {
					t.Errorf("%d requests in a minute", asks)
				}
				if (len(s) > 0) != tt.stopped || len(held.Detail) > 500 || held.RetryAfter < 0 || held.RetryAfter > maxRetry || strings.ContainsAny(held.Detail, "\x1b\u202e") {
					t.Errorf("stopped %v, held by %.600q for %s", s, held.Detail, held.RetryAfter)
				}
			})
		})
	}
	if len(answers) > 0 {
		t.Errorf("not tested: %v", answers)
	}
	run(t, func(g *guard) { // a permit for ever lasts as long as it takes to use it
		g.agent.set(g.agent.honest(agenttest.Grants()["permit for ever"]))
		g.want[memory] = "u1"
		g.pass()
		g.noPass(time.Second)
		g.agent.set(nil)
		g.noPass(maxPermit)
		if _, held := g.pass(); held == (policy.Held{}) {
			t.Error("permitted after a minute")
		}
	})
}
