package scenario

import (
	"testing"

	"github.com/criguard/criguard/guard/fleet/config"
)

// The agent accepts the configuration of the scenario.
func TestFleetConfig(t *testing.T) {
	cfg, err := config.Parse("fleet.toml", fleetConfig)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.TLS.Key != fleetKey || len(cfg.Endpoints) != 1 || cfg.Rates.Rate != 500_000 {
		t.Errorf("parsed %+v", cfg)
	}
}
