// Package trace reads and writes traces. A trace is a record of a node, one JSON value per line: its
// signals, its running pods and its images. "criguard record" writes a trace, and "criguard simulate"
// replays it. A field that a line leaves out keeps its last value.
package trace
