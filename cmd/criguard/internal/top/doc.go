// Package top is the live view of a node: its signals with their thresholds, the pods in eviction
// order, and criguard's last actions.
//
// It owns the terminal while it runs and never acts on the node; a Source supplies the data. A
// Model holds everything that is shown, and View turns it into lines for any screen size without
// reading the clock, the terminal or the node. Any user who starts pods chooses names on the node,
// so all text reaches a line through row.put, which removes control sequences and limits the width.
//
// The view uses the ECMA-48 sequences and xterm's alternate screen, which all terminal emulators
// and the Linux console support, so it does not read terminfo. A screen library would add up to 0.8
// MiB of resident memory to the service, which is the same binary.
package top
