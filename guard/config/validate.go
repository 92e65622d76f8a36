package config

import (
	"fmt"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/policy"
)

// Default returns the configuration used without any file.
func Default() Config {
	cfg, _ := build(newChecker()) // a test checks the defaults against the rules
	return cfg
}

func newChecker() *schema.Checker {
	return schema.NewChecker(schema.Hints{
		Example: `interval = "10s"`, Table: "[images]", Unknown: "config.example.toml lists every key", Others: kubeletNames,
	})
}

// build checks every value and builds the Config. The error joins all mistakes, including those
// from reading.
func build(c *schema.Checker) (Config, error) {
	var cfg Config
	keys, tables := allKeys(&cfg)
	c.Apply(keys)
	thresholds(c, &cfg.Eviction, tables)
	backoff(c, cfg.Backoff.BackoffConfig)
	watermarks(c, cfg.Images)
	if len(cfg.Hooks) > maxHooks {
		c.Add("hook", nil, fmt.Sprintf("must have at most %d tables", maxHooks), "one hook can handle several kinds of events")
	}
	if err := c.Err(); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

func backoff(c *schema.Checker, b policy.BackoffConfig) {
	first, most, reset := c.Value("backoff.first"), c.Value("backoff.max"), c.Value("backoff.reset")
	switch {
	case c.Has("backoff.first", "backoff.max", "backoff.reset") || b.First == 0: // 0: back-off is disabled
	case b.First > b.Max:
		c.Add("backoff.first", first, "must not be above backoff.max", fmt.Sprintf("raise backoff.max, which is %s", most))
	case b.Reset < b.Max:
		c.Add("backoff.reset", reset, "must not be below backoff.max", fmt.Sprintf("criguard would forget a workload before its wait of %s ends", most))
	}
}

func watermarks(c *schema.Checker, i Images) {
	if !c.Has("images.high", "images.low") && share(i.Low) >= share(i.High) {
		c.Add("images.low", c.Value("images.low"), "must be below images.high",
			fmt.Sprintf("pruning starts above high, which is %s, and ends at low", c.Value("images.high")))
	}
}

// share makes percentages comparable.
func share(q policy.Quantity) int64 { return q.Of(1 << 62) }
