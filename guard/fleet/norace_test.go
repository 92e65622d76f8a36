//go:build !race

package fleet

// raceEnabled reports whether the race detector slows the tests down.
const raceEnabled = false
