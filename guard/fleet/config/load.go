package config

import (
	"errors"
	"os"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/guard/fleet"
)

// Load reads the configuration of an agent. The error joins a *schema.Error for each mistake.
func Load(path string) (fleet.Config, error) { return parse(schema.ReadFile(path), require) }

// Parse reads a configuration; name stands for it in errors. The error joins a *schema.Error for each mistake.
func Parse(name, text string) (fleet.Config, error) {
	return parse(schema.File{Name: name, Text: []byte(text)}, require)
}

// LoadRates reads the rates of a configuration, which need not say how to connect. Without a path it reads
// [fleet.DefaultPath], and returns the defaults if that does not exist.
func LoadRates(path string) (fleet.Rates, error) {
	if path == "" {
		if _, err := os.Stat(fleet.DefaultPath); errors.Is(err, os.ErrNotExist) {
			return fleet.DefaultRates(), nil
		}
		path = fleet.DefaultPath
	}
	cfg, err := parse(schema.ReadFile(path), func(*schema.Checker, fleet.Config) {})
	return cfg.Rates, err
}

func parse(file schema.File, require func(*schema.Checker, fleet.Config)) (fleet.Config, error) {
	c := schema.NewChecker(schema.Hints{Example: `zone = "ring-1"`, Table: "[rates]"})
	cfg := fleet.Config{Rates: fleet.DefaultRates()}
	if keys := allKeys(&cfg); c.Read(keys, file) {
		c.Apply(keys)
		compare(c, cfg)
		require(c, cfg)
	}
	if err := c.Err(); err != nil {
		return fleet.Config{}, err
	}
	return cfg, nil
}
