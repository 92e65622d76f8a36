package policy

import "time"

// Reprotect is called when pods have become protected, or are no more: what they use has moved between the unprotected pods and what
// is outside these, and nothing has grown. by returns by how much that has become more, as a signal counts it, because of pods that ran
// at a time. Stops that began then are judged as if it had been so.
func (r *Restraint) Reprotect(by func(s Signal, at time.Duration) int64) {
	for i := range r.stops {
		if s := &r.stops[i]; !s.Judged {
			s.Outside.Value += by(s.Signal, s.At)
		}
	}
	for p := range r.breakers {
		b := &r.breakers[p]
		for i := range b.Last {
			b.Last[i].Outside.Value += by(b.Last[i].Signal, b.Last[i].At)
		}
		if len(b.Last) > 0 {
			b.Pods.Value -= by(Pool(p).UseSignal(b.Last[0].Signal), b.Last[len(b.Last)-1].At)
		}
	}
}
