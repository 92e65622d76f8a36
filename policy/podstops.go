package policy

import "time"

// PodStops are the last stops that count, by the pod's UID. They are valid until the next stop is recorded.
type PodStops map[string]*podStop

// podStop is a stop of a pod, with the one before it.
type podStop struct {
	*Stop
	before *podStop
	now    time.Duration
}

// ByPod returns the stops that count, for rules that are applied to each of many pods. For what a kubelet keeps, a stop counts for as
// long as the pod is back.
func (r *Restraint) ByPod(now time.Duration) PodStops {
	r.at(now)
	all, stops := make([]podStop, len(r.stops)), make(PodStops, len(r.stops))
	for i := range r.stops {
		if s := &r.stops[i]; s.UID != "" && (r.lasts(s) || r.isKept(s)) {
			all[i] = podStop{s, stops[s.UID], r.now}
			stops[s.UID] = &all[i]
		}
	}
	return stops
}

// isKept reports whether the pod was back in another sandbox a short time ago.
func (r *Restraint) isKept(s *Stop) bool { return s.met > 0 && r.now-s.met < r.remembers() }

// remembers is how long what has ended counts at least.
func (r *Restraint) remembers() time.Duration { return max(r.backoff.Reset, time.Minute) }

// KeepsVolumes reports whether a pod was stopped in another sandbox: a kubelet has started it again, and has kept its
// volumes.
func (p PodStops) KeepsVolumes(uid, sandbox string) bool {
	for s := p[uid]; s != nil; s = s.before {
		if s.Sandbox != sandbox {
			s.met = s.now
			return true
		}
	}
	return false
}

// KeptMemory returns what the last stop of a pod for memory, in another sandbox, left of it: a kubelet keeps the pod's volumes,
// also those in memory, when it starts the pod again. used is what the pod uses now: no more than that can be left.
func (p PodStops) KeptMemory(uid, sandbox string, used Amount) int64 {
	for s := p[uid]; s != nil; s = s.before {
		if s.Sandbox == sandbox || s.Cause != CausePressure || s.Pool != PoolMemory || !s.Over {
			continue
		}
		s.met = s.now
		if used.Known {
			s.Kept = min(s.Kept, max(used.Value, 0))
		}
		return s.Kept
	}
	return 0
}
