// Package configtest parses configurations in tests.
package configtest

import (
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/config"
)

// Parse parses a configuration that must be valid.
func Parse(tb testing.TB, text string) config.Config {
	tb.Helper()
	cfg, err := config.Parse("test.toml", strings.NewReader(text))
	if err != nil {
		tb.Fatalf("parse:\n%s\n%v", text, err)
	}
	return cfg
}
