// Package config reads and checks fleet.toml, the configuration of a fleet's agent. Its rules are those of the service's
// configuration: all mistakes are reported at once, each with its line and a hint, and unknown keys are mistakes.
package config
