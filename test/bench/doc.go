// Command bench measures criguard on this machine, with real pods in a private
// containerd, and earlyoom beside it in the same run: how long a leak lives once it
// has crossed the threshold, at several rates; the same through the runtime alone, and
// with a runtime that hangs; what an idle guard costs; and what a pass costs as
// sandboxes grow many.
//
// It prints a table, writes a JSON file, and exits 1 when a figure misses its goal.
// What is crossed, and when, it sees by itself: it samples the very level that the guard
// is told to keep, and waits for the hog's end by its pidfd, all on CLOCK_MONOTONIC.
// docs/performance.md says how to read what comes out.
package main
