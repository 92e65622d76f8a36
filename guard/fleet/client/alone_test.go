package client

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

// raw is an agent that reads a request and writes bytes, again and again if they are endless.
func raw(head, endless string, pause time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		b := make([]byte, 4096)
		if _, err := c.Read(b); err != nil {
			return
		}
		_, err := io.WriteString(c, head)
		for err == nil && endless != "" {
			time.Sleep(pause)
			_, err = io.WriteString(c, endless)
		}
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

// bad are agents that give no valid answer.
func bad(f *agentFake) map[string]func(net.Conn) {
	status := func(code int) func(net.Conn) {
		return f.handles(func(w http.ResponseWriter, _ call) {
			w.Header().Set("Location", "http://192.0.2.1/v1/permits/memory/u1")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, f.isGranted(time.Minute))
		})
	}
	return map[string]func(net.Conn){
		"missing":          nil,
		"closes":           func(net.Conn) {},
		"hangs":            func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"does not read":    func(c net.Conn) { time.Sleep(time.Hour) },
		"no HTTP":          raw("hello\r\n\r\n", "", 0),
		"endless header":   raw(ok, "X-A: "+strings.Repeat("a", 1000)+"\r\n", 0),
		"long header line": raw(ok+"X-A: ", strings.Repeat("a", 1000), 0),
		"early hints":      raw("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 0),
		"endless body":     raw(ok+"\r\n", strings.Repeat(" ", 1000), 0),
		"slow body":        raw(ok+"\r\n{", " ", 100*time.Millisecond),
		"megabytes": f.answers(func(call) string {
			return `{"state":"granted","deadline":"9000h","reason":"` + strings.Repeat("a", 1<<20) + `"}`
		}),
		"compressed": f.handles(func(w http.ResponseWriter, _ call) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "\x1f\x8b\x08\x00")
		}),
		"cut":                raw(ok+"Content-Length: 100\r\n\r\n{}", "", 0),
		"redirect":           status(http.StatusTemporaryRedirect),
		"permanent redirect": status(http.StatusMovedPermanently),
		"bad request":        status(http.StatusBadRequest),
		"created":            status(http.StatusCreated),
		"unavailable":        status(http.StatusServiceUnavailable),
		"no JSON":            f.honest("yes"),
		"empty":              f.answers(func(call) string { return "" }),
		"empty object":       f.answers(func(call) string { return "not JSON" }),
	}
}

// An agent that gives no valid answer leaves the node alone: gentle stops are held for 2 minutes, then made at a tenth of
// the local budget, which starts empty, and after 15 minutes at the local budget. No pass waits.
func TestAgentThatDoesNotAnswer(t *testing.T) {
	for name := range bad(new(agentFake)) {
		t.Run(name, func(t *testing.T) { run(t, func(g *guard) { g.agent.set(bad(g.agent)[name]); g.wantAlone() }) })
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
	const most = "2562047h47m16s" // of a time.Duration
	for name, tt := range map[string]struct {
		answer  string
		stopped bool
		asks    [2]int // least and most requests in a minute
	}{
		"permit for ever":           {`{"state":"granted","deadline":"` + most + `"}`, true, [2]int{1, 1}},
		"permit in the past":        {`{"state":"granted","deadline":"1s"}`, false, [2]int{50, 70}},
		"permit before the boot":    {`{"state":"granted","deadline":"-` + most + `"}`, false, [2]int{50, 70}},
		"permit without a deadline": {`{"state":"granted"}`, false, [2]int{50, 70}},
		"denied for ever":           {`{"state":"denied","retry_after":"` + most + `"}`, false, [2]int{2, 3}},
		"denied, asked again now":   {`{"state":"denied","retry_after":"-` + most + `"}`, false, [2]int{50, 70}},
		"escapes":                   {`{"state":"denied","reason":"\u001b[2J\u202e` + strings.Repeat("ä", 9000) + `","retry_after":"30s"}`, false, [2]int{2, 3}},
		"unknown fields":            {`{"state":"denied","retry_after":"30s","kill":"all"}`, false, [2]int{2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(g *guard) {
				g.agent.set(g.agent.honest(tt.answer))
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
	run(t, func(g *guard) { // a permit for ever lasts as long as it takes to use it
		g.agent.set(g.agent.honest(`{"state":"granted","deadline":"` + most + `"}`))
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
