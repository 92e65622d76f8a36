package world

import (
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// accidentsOf lets users delete pods, in one of three seeds, and an operator drain the node for a while, in one of ten. It has
// dice of its own.
func accidentsOf(w *World, seed uint64, length time.Duration) {
	d := diceOf(seed, 41)
	if d.oneIn(3) {
		for range d.between(1, 4) {
			w.At(d.at(5*time.Second, length), func(w *World) {
				if p := someone(w, d); p != nil {
					w.remove(p)
				}
			})
		}
	}
	if d.oneIn(10) {
		at := d.at(5*time.Second, length)
		w.At(at, func(w *World) {
			w.drained = true
			for _, p := range w.pods {
				p.asked = true
			}
			w.Command(api.Command{Command: api.CommandDrain, Grace: api.Duration(d.at(0, 10*time.Second))}, func() {})
		})
		w.At(at+d.at(time.Second, time.Minute), func(w *World) {
			w.Command(api.Command{Command: api.CommandUndrain}, func() { w.drained = false })
		})
	}
}

// prunesOf has operators prune up to three times, in one of three seeds with a disk that runs short. It has dice of its own.
func prunesOf(w *World, seed uint64, length time.Duration) {
	d := diceOf(seed, 73)
	if w.free.bytes == 0 || !d.oneIn(3) {
		return
	}
	for range d.between(1, 3) {
		o := api.PruneOptions{Containers: d.oneIn(2), DryRun: d.oneIn(4), IgnoreAge: d.oneIn(4)}
		if o.Images = !o.Containers || d.oneIn(2); d.oneIn(3) {
			o.Signal, o.Until = policy.ImageFSAvailable, policy.Bytes(d.between(1, 8)*gib)
		}
		w.At(d.at(5*time.Second, length), func(w *World) { w.Prune(o) })
	}
}

// napsOf lets the machine sleep for less than a minute soon after a pod that was stopped for the disk has ended, while the disk slowly
// deletes its files, in one of two seeds with a disk that runs short. It has dice of its own.
func napsOf(w *World, seed uint64) {
	d := diceOf(seed, 61)
	if w.free.bytes == 0 || !d.oneIn(2) {
		return
	}
	w.naps, w.disk.deleted.perSecond = &d, space{d.spread(10, 200) * mib, d.spread(5_000, 50_000)}
}

func (w *World) nap(p *pod) {
	if d := w.naps; d != nil && p.order.pool() == "disk" {
		w.At(w.Now()+d.at(0, 3*time.Second), func(w *World) { w.sleep(d.at(time.Second, 59*time.Second)) })
	}
}

// shimsOf lets the shims of some pods hang for a while, in one of six seeds, and the plugin for the network fail, in one of six. It
// has dice of its own.
func shimsOf(w *World, seed uint64, length time.Duration) {
	d := diceOf(seed, 71)
	if d.oneIn(6) {
		for range d.between(1, 10) {
			lasts := d.at(time.Second, 2*time.Minute)
			w.At(d.at(5*time.Second, length), func(w *World) {
				if p := someone(w, d); p != nil {
					w.logf("the shim of %s hangs for %v", p, lasts)
					thaw := w.runtime.FreezeShim(p.ID)
					p.hangs = true
					w.At(w.Now()+lasts, func(*World) { thaw() })
				}
			})
		}
	}
	if d.oneIn(6) {
		lasts := d.at(time.Second, 2*time.Minute)
		w.At(d.at(5*time.Second, length), func(w *World) {
			w.logf("the network of pods cannot be removed for %v", lasts)
			w.networkUntil = w.Now() + lasts
			repair := w.runtime.BreakNetwork()
			w.At(w.Now()+lasts, func(*World) { repair() })
		})
	}
}

// remove ends a pod and removes it from the runtime once its processes have ended, as a kubelet does with one that was deleted.
func (w *World) remove(p *pod) {
	p.returns = 0
	w.end(p, "is deleted", 143)
	for _, c := range p.Containers {
		w.runtime.Exit(c.ID, 143)
	}
	w.forget(p)
}

// forget removes a pod from the runtime once its processes have ended.
func (w *World) forget(p *pod) {
	w.When(func() bool { return !w.away && p.gone }, w.Now(), watchStep, func(w *World) {
		w.unmounted(p)
		w.runtime.Forget(p.ID)
		w.rmdir(p.CgroupParent)
		w.removePodDirs(p)
	})
}
