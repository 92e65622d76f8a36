// Package top is the live view of a node: its signals against their thresholds, the pods in
// the order in which they would be stopped, and what the guard did last.
//
// It owns the terminal while it runs, and nothing else: what it shows comes from a Source,
// and it never acts on the node. A Model holds all that is shown; View turns it into lines
// for a screen of any size, without looking at the clock, the terminal or the node. Names on a
// node are chosen by whoever starts pods, so that text reaches a line through one gate,
// row.put, which lets nothing by that moves the cursor, and never more columns than there are.
//
// The terminal is driven by the sequences of ECMA-48 and xterm's alternate screen that every
// terminal emulator and the Linux console share; terminfo is not asked. A library for screens
// would keep up to 0.8 MiB more resident in the service, which is the same program.
package top
