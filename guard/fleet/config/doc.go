// Package config reads and checks fleet.toml, the configuration of a fleet's agent. Package guard/config/schema reads it by
// the rules of the service's configuration: all mistakes are reported at once, each with its line and a hint, and unknown
// keys are mistakes. This package owns the keys, and checks that compare them.
package config
