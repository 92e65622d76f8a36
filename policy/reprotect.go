package policy

import "time"

// ProtectedPods are the pods that were protected at a time since boot, by sandbox: those created before that are not among them
// were not. At 0, nothing is known.
type ProtectedPods struct {
	At        time.Duration `json:"at"`
	Sandboxes []string      `json:"sandboxes"`
}

// Reprotect is called when pods have become protected, or are no more: what they use has moved between the unprotected pods and what
// is outside these, and nothing has grown. by returns by how much that has become more, as a signal counts it, because of pods that ran
// at a time. Stops that began then are judged as if it had been so, or if it is unknown, only by what came back.
func (r *Restraint) Reprotect(by func(s Signal, at time.Duration) Amount) {
	move := func(a *Amount, by Amount) { a.Value, a.Known = a.Value+by.Value, a.Known && by.Known }
	for i := range r.stops {
		if s := &r.stops[i]; !s.Judged {
			move(&s.Outside, by(s.Signal, s.At))
		}
	}
	for p := range r.breakers {
		b := &r.breakers[p]
		for i := range b.Last {
			move(&b.Last[i].Outside, by(b.Last[i].Signal, b.Last[i].At))
		}
		if len(b.Last) > 0 {
			if m := by(Pool(p).UseSignal(b.Last[0].Signal), b.Last[len(b.Last)-1].At); m.Known {
				b.Pods.Value -= m.Value
			}
		}
	}
}
