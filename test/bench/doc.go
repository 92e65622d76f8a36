// Command bench measures criguard on this machine, with real pods in a private containerd, and
// earlyoom in the same run for comparison. It measures how long a leaking pod survives after it
// crosses the threshold, at several rates; the same when criguard kills only through the runtime,
// and when the runtime hangs, or when it is in a fleet whose agent does; the cost of an idle guard; and
// the cost of a pass as the number of sandboxes grows.
//
// It prints a table, writes a JSON file, and exits with 1 when a figure misses its goal. It detects
// each crossing itself: it samples the level that the guard is configured with, and waits for the
// hog's end by its pidfd, all on CLOCK_MONOTONIC. docs/performance.md explains the results.
package main
