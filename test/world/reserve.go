package world

import (
	"time"
)

// reserveOf gives the disk a reserve for root, in one of two seeds. Some pods run as root and may use it. In two of three of these
// seeds, a process outside of the pods fills the disk and takes most of the reserve, while pods have much on the disk. It has dice
// of its own.
func reserveOf(w *World, seed uint64, length time.Duration) {
	d := diceOf(seed, 43)
	if !d.oneIn(2) {
		return
	}
	w.disk.reserve = w.disk.total / 100 * d.between(1, 5)
	w.disk.other.Add(-w.disk.reserve)
	for _, p := range w.pods {
		p.root = d.oneIn(2)
	}
	if d.oneIn(3) {
		return
	}
	for _, p := range w.pods {
		if bytes := d.spread(300, 3000) * mib; bytes < w.disk.other.Load() {
			w.disk.other.Add(-bytes)
			w.disk.fill(p, bytes)
		}
	}
	taken := int64(float64(w.disk.reserve) * (1 + d.Float64()) / 2)
	w.At(d.at(5*time.Second, length/3), func(w *World) {
		w.logf("a process outside the pods fills the disk, and takes %d of the %d MiB that are reserved", taken/mib, w.disk.reserve/mib)
		bytes := w.disk.unused().bytes - w.disk.reserve + taken
		w.disk.other.Add(bytes)
		w.took = append(w.took, taking{w.Now(), bytes})
		w.full = true // no stop prevents that
	})
}
