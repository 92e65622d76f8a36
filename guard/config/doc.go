// Package config loads, checks and prints criguard's configuration.
//
// It owns the TOML file and its drop-ins: the keys with their defaults and rules, the origin of each
// value, and the differences between two configurations. Package schema below it reads the files and
// reports the errors; package kubelet converts a kubelet's configuration.
//
// It never inspects the node: other packages check whether a threshold is met or a directory
// exists.
package config
