// Package api defines criguard.io/v1: the JSON that criguard prints, serves on its control socket, passes to
// hooks and writes to its history. It contains data types, their limits, their formatting and simple
// predicates on them. It does no I/O and decides nothing about pods.
//
// The signal determines the unit of a quantity: bytes, inodes or tasks, or millionths of the time for
// stalls. A duration in a field at, stop_at, since or until counts from boot.
package api
