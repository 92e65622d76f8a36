// Package api defines criguard.io/v1: the JSON that criguard prints, serves on its control socket, passes to
// hooks and writes to its history. It contains data types, their limits and their formatting, and no
// behaviour.
//
// The signal determines the unit of a quantity: bytes, inodes or tasks, or millionths of the time for
// stalls. A duration named At counts from boot.
package api
