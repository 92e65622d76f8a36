package config

import (
	"slices"
	"strings"

	"github.com/criguard/criguard/guard/config/schema"
)

// KeyOrigin is one key of the effective configuration.
type KeyOrigin struct {
	Key           string `json:"key"`   // with its table, as in TOML
	Value         any    `json:"value"` // a string, a number, true, false or a list of strings
	schema.Origin        // no file: the default applies
}

// Report is the effective configuration in machine-readable form.
type Report struct {
	APIVersion string      `json:"apiVersion"`
	Files      []string    `json:"files"`           // lowest precedence first
	Keys       []KeyOrigin `json:"keys"`            // in the order of the reference
	Notes      []string    `json:"notes,omitempty"` // settings that are valid but may not do what they seem to
}

// Origins returns where each key of the effective configuration was set.
func (c Config) Origins() (list []KeyOrigin) {
	origin := c.originOf()
	for _, l := range c.lines() {
		if l.key != "" {
			if texts, ok := l.value.([]string); ok {
				l.value = append([]string{}, texts...) // [] instead of null
			}
			list = append(list, KeyOrigin{l.key, l.value, origin(l.key)})
		}
	}
	return list
}

// originOf returns a function that returns where a key in force was set. Keys inside an inline value
// have no line of their own, so a value that differs from its default was set where the enclosing
// value is.
func (c Config) originOf() func(key string) schema.Origin {
	changed := c.Diff(Default())
	return func(key string) schema.Origin {
		at, ok := c.origins.At(key)
		if inRule := strings.Contains(key, "]"); ok || !inRule && !slices.Contains(changed, key) {
			return at
		}
		return c.origins.Of(key)
	}
}
