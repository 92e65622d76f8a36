package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/journal"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/simulate"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

const inFleet = `
runtime.endpoint = '/none'
fleet.enabled = true
eviction.hard = {'memory.available' = '1Gi'}
eviction.soft = {'memory.available' = '2Gi'}
eviction.soft_grace_period = {'memory.available' = '1s'}
`

// fleetService returns a service whose fleet has this agent, and a function that lets a second pass, sets the
// available memory in MiB, and makes a pass. A nil agent does not exist. prepare changes the service before it runs.
func fleetService(t *testing.T, agent http.HandlerFunc, prepare ...func(s *Service)) (s *Service, pass func(mib int) api.Pass) {
	t.Helper()
	s = effectService(t, configtest.Parse(t, nodetest.Config(t, inFleet+"history.dir = '"+t.TempDir()+"'")))
	for _, p := range prepare {
		p(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	if agent != nil {
		l, err := net.Listen("unix", s.opt.Dir.FleetSocket())
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: agent, BaseContext: func(net.Listener) context.Context { return ctx }}
		group.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
		t.Cleanup(func() { server.Close(); group.Wait() })
	}
	group.Go(func() { s.fleet.Run(ctx) })
	t.Cleanup(cancel)
	n, at, big := simulate.NewNode(s.opt.Config), 0, "d/big"
	s.guard = eviction.New(s.opt.Config, n, n, n, n, s.fleet, policy.NewRestraint(s.host.bootID))
	return s, func(mib int) api.Pass {
		t.Helper()
		at++
		l, err := trace.NewReader(strings.NewReader(fmt.Sprintf(`{"at":"%ds","signals":{"memory.available":{"available":"%dMi","capacity":"16Gi"}},`+
			`"pods":[{"name":"%s","memory_usage":"%dMi"},{"name":"d/small","memory_usage":"1Gi"}]}`, at, mib, big, 10<<10-mib))).Next()
		if err != nil {
			t.Fatal(err)
		}
		n.Advance(l)
		p := s.guard.Pass(t.Context(), "test")
		s.after(&p)
		if p.Stop != nil {
			big = fmt.Sprintf("d/big-%d", at) // its replacement
		}
		return p
	}
}

// answering is an agent that answers every request for a permit with the text.
func answering(text *atomic.Pointer[string]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := "{}"
		if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/v1/permits/") {
			answer = *text.Load()
		}
		_, _ = io.WriteString(w, answer)
	}
}

// A soft stop waits for the permit. Status, history and journal say why.
func TestServiceWaitsForAPermit(t *testing.T) {
	var answer atomic.Pointer[string]
	answer.Store(new(`{"state":"denied","reason":"zone z1 is partial: 0/s","retry_after":"1s"}`))
	s, pass := fleetService(t, answering(&answer))
	var text strings.Builder
	s.journal = journal.New(slog.New(slog.NewTextHandler(&text, nil)))
	if p := pass(3000); p.Held != "" {
		t.Errorf("held by %q without pressure", p.Held)
	}
	pass(1500)
	nodetest.Await(t, "the denial", func() bool {
		p := pass(1500)
		return p.Held == api.HeldFleet && p.HeldDetail == "zone z1 is partial: 0/s"
	})
	st := s.status()
	if st.Held != api.HeldFleet || st.HeldDetail != "zone z1 is partial: 0/s" || st.HeldBy != "memory.available:soft" || len(st.AlsoHeld) > 0 || len(st.Warnings) > 0 {
		t.Errorf("status: %q: %q of %q, warnings %q", st.Held, st.HeldDetail, st.HeldBy, st.Warnings)
	}
	if line := s.statusLine(); !strings.Contains(line, "held back: fleet: zone z1 is partial: 0/s") {
		t.Errorf("status line %q", line)
	}
	if n := strings.Count(text.String(), `reason="fleet: `); n != 1 {
		t.Errorf("%d lines in the journal: %s", n, &text)
	}
	records := 0
	for _, p := range passesOf(t, s) {
		if p.Held == api.HeldFleet && p.HeldDetail == "zone z1 is partial: 0/s" {
			records++
		}
	}
	if records != 1 {
		t.Errorf("%d records", records)
	}
	answer.Store(new(`{"state":"granted","deadline":"` + (s.host.kernel.Now() + time.Hour).String() + `"}`))
	var p api.Pass
	nodetest.Await(t, "the stop", func() bool { p = pass(1500); return p.Stop != nil })
	if p.Stop.Pod != "d/big" || p.Stop.Kind != policy.Soft.String() || p.Held != "" || s.status().HeldDetail != "" {
		t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
	}
}

// An agent changes nothing about a hard stop, whatever it does. The agent that does not exist stands for none.
func TestHardStopsIgnoreTheFleet(t *testing.T) {
	fixed := func(text string) http.HandlerFunc {
		var answer atomic.Pointer[string]
		answer.Store(&text)
		return answering(&answer)
	}
	want := ""
	for _, tt := range []struct {
		name  string
		agent http.HandlerFunc
	}{
		{"missing", nil},
		{"grants", fixed(`{"state":"granted","deadline":"2562047h47m16s"}`)},
		{"denies", fixed(`{"state":"denied","retry_after":"2562047h47m16s"}`)},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"floods", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(" ", 1<<16)); err != nil {
					return
				}
			}
		}},
		{"redirects", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
		}},
		{"lies", fixed(`{"state":"hard","kill":"d/small"}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, pass := fleetService(t, tt.agent)
			pass(1500)
			if p := pass(1500); p.Held != api.HeldAsking {
				t.Fatalf("the soft stop is held by %q", p.Held)
			}
			p := pass(512)
			if p.Stop == nil {
				t.Fatalf("no stop, held by %q", p.Held)
			}
			got := fmt.Sprintf("%s %s %s %s %+v", p.Stop.Pod, p.Stop.Kind, p.Stop.Signal, p.Stop.Reason, p.Need)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("stopped %s, want %s", got, want)
			}
		})
	}
}
