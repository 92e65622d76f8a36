package config

import (
	"fmt"

	"github.com/criguard/criguard/policy"
)

// Default returns the configuration used without any file.
func Default() Config {
	cfg, _ := newChecker().config() // a test checks the defaults against the rules
	return cfg
}

func newChecker() checker { return checker{&mistakes{}, map[string]any{}} }

// config checks every value and builds the Config. The error joins all mistakes, including those
// from reading.
func (c checker) config() (Config, error) {
	var cfg Config
	keys, tables := schema(&cfg)
	c.apply(keys, "")
	c.thresholds(&cfg.Eviction, tables)
	c.backoff(cfg.Backoff.BackoffConfig)
	c.watermarks(cfg.Images)
	if len(cfg.Hooks) > maxHooks {
		c.add("hook", nil, fmt.Sprintf("must have at most %d tables", maxHooks), "one hook can handle several kinds of events")
	}
	if err := c.err(); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

func (c checker) backoff(b policy.BackoffConfig) {
	first, most, reset := c.values["backoff.first"], c.values["backoff.max"], c.values["backoff.reset"]
	switch {
	case c.has("backoff.first", "backoff.max", "backoff.reset") || b.First == 0: // 0: back-off is disabled
	case b.First > b.Max:
		c.add("backoff.first", first, "must not be above backoff.max", fmt.Sprintf("raise backoff.max, which is %s", most))
	case b.Reset < b.Max:
		c.add("backoff.reset", reset, "must not be below backoff.max", fmt.Sprintf("criguard would forget a workload before its wait of %s ends", most))
	}
}

func (c checker) watermarks(i Images) {
	if !c.has("images.high", "images.low") && share(i.Low) >= share(i.High) {
		c.add("images.low", c.values["images.low"], "must be below images.high",
			fmt.Sprintf("pruning starts above high, which is %s, and ends at low", c.values["images.high"]))
	}
}

// share makes percentages comparable.
func share(q policy.Quantity) int64 { return q.Of(1 << 62) }
