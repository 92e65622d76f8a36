package prom_test

import (
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/agent"
)

// Prometheus' checker accepts the metrics of a fleet's agent.
func TestFleetScrapeIsClean(t *testing.T) {
	a := agent.New(agent.Options{Fleet: "f", Rates: fleet.DefaultRates(), Rand: rand.New(rand.NewPCG(1, 2)), Now: func() time.Duration { return time.Hour }})
	w := httptest.NewRecorder()
	agent.NewServer(a).Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/metrics", nil))
	text := w.Body.String()
	promtool(t, text, "check", "metrics")
	if !strings.Contains(text, "\ncriguard_fleet_connected 0\n") {
		t.Errorf("metrics: %s", text)
	}
}
