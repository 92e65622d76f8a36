//go:build !race

package simulate

// raceEnabled reports whether the race detector slows the tests down.
const raceEnabled = false
