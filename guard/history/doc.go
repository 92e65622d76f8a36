// Package history stores the notable passes and the signals around each stop, in memory and on disk. A
// Writer saves them in its own goroutine, so that a stalled disk delays nothing else. Older passes are read
// from the file on demand.
package history
