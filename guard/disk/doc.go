// Package disk reads the node's filesystems and measures how much of them each pod uses. Observing
// never blocks for long: each filesystem is read in its own goroutine, so if one hangs, its signals fail and the
// others are still read.
//
// A Watcher reads free space and inodes and detects which filesystems share a device. A Meter measures pods
// on demand: it asks the runtime for writable layers, and walks logs and volumes. Each part of a usage is
// exact, a lower bound, or unknown.
package disk
