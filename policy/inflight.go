package policy

import "slices"

// Wait is what a disk waits for that has chosen a pod which is already being stopped.
type Wait struct {
	Pool      Pool   `json:"pool"`
	Signal    Signal `json:"signal"`
	Available int64  `json:"available"` // of the signal when the pod was chosen, see Observation.Free
	Expected  int64  `json:"expected"`  // yield
}

// End records that a sandbox's stop is over: its resources are free again, or it was given up. back is
// what came back from the sandbox itself. If the stop was over for its pool before, it is over for the disks that wait for it, too.
func (r *Restraint) End(sandbox string, back int64) {
	s := r.last(func(s *Stop) bool { return s.Sandbox == sandbox && s.Pending() })
	switch {
	case s == nil:
	case s.Over:
		s.Waits = nil
	default:
		s.Over, s.Back = true, back
		s.Pass, s.Pod = 0, ""
		if s.Pool == PoolMemory {
			s.Kept = addCapped(s.Kept, max(s.Expected-back, 0))
		}
	}
}

// Left records that no more memory than that is left of a sandbox's last stop, which is over: the rest has come back after all. It
// reports whether it is less than before.
func (r *Restraint) Left(sandbox string, bytes int64) (less bool) {
	s := r.last(func(s *Stop) bool { return s.Sandbox == sandbox })
	if less = s != nil && s.Over && bytes < s.Kept; less {
		s.Back = min(addCapped(s.Back, s.Kept-bytes), s.Expected)
		s.Kept = bytes
	}
	return less
}

// Report records that the outcome of a sandbox's last stop is recorded, although it is not over.
func (r *Restraint) Report(sandbox string) {
	if s := r.last(func(s *Stop) bool { return s.Sandbox == sandbox && !s.Over }); s != nil {
		s.Pass, s.Pod = 0, ""
	}
}

// Await records that a pool waits for a sandbox's stop of another cause: the pool, the signal and what the stop gives back of it.
func (r *Restraint) Await(stop *Stop) {
	if s := r.last(func(s *Stop) bool { return s.Sandbox == stop.Sandbox && !s.Over }); s != nil && s.Cause != CausePressure {
		s.Awaited, s.Released, s.Pool, s.Signal, s.LogsPlace = true, false, stop.Pool, stop.Signal, stop.LogsPlace
		s.Expected, s.Available, s.Free, s.Kept = stop.Expected, stop.Available, stop.Free, stop.Kept
		s.EndWait(stop.Pool)
	}
}

// AwaitDisk records that a disk waits for a sandbox's stop, too.
func (r *Restraint) AwaitDisk(sandbox string, w Wait) {
	if s := r.last(func(s *Stop) bool { return s.Sandbox == sandbox && s.Pending() }); s != nil {
		s.AwaitDisk(w)
	}
}

// EndWait records that a disk does not wait for a sandbox's stop any more, and reports whether it did.
func (r *Restraint) EndWait(sandbox string, p Pool) bool {
	s := r.last(func(s *Stop) bool { return s.Sandbox == sandbox && s.waitOf(p) >= 0 })
	if s != nil {
		s.EndWait(p)
	}
	return s != nil
}

// Pending reports whether the stop is not over for its own pool, or a disk waits for it.
func (s *Stop) Pending() bool { return !s.Over || len(s.Waits) > 0 }

// OwnWait returns what the stop's own pool waits for, in the form of a disk's wait.
func (s *Stop) OwnWait() Wait { return Wait{s.Pool, s.Signal, s.Free, s.Expected} }

// AwaitDisk adds the wait of a disk, in place of an earlier one. Copies of the stop do not change.
func (s *Stop) AwaitDisk(w Wait) {
	s.EndWait(w.Pool)
	s.Waits = append(s.Waits, w)
}

// EndWait removes the wait of a disk.
func (s *Stop) EndWait(p Pool) {
	s.Waits = slices.DeleteFunc(slices.Clone(s.Waits), func(w Wait) bool { return w.Pool == p })
}

// waitOf returns the index of the wait of a disk, negative if it does not wait.
func (s *Stop) waitOf(p Pool) int {
	return slices.IndexFunc(s.Waits, func(w Wait) bool { return w.Pool == p })
}

// Unfinished returns the last stop that a pool waits for and that is not over, or nil. One that is over for its own pool is
// returned as that of the disk. Its Waits are those of the others.
func (r *Restraint) Unfinished(p Pool) *Stop {
	if s := r.last(func(s *Stop) bool { return !s.Over && s.Pool == p && s.isAwaited() }); s != nil {
		return s
	}
	s := r.last(func(s *Stop) bool { return s.Over && s.waitOf(p) >= 0 })
	if s != nil {
		w := s.Waits[s.waitOf(p)]
		s = new(*s)
		s.EndWait(p)
		s.Pool, s.Signal, s.Available, s.Free, s.Expected, s.Over = p, w.Signal, w.Available, w.Available, w.Expected, false
	}
	return s
}

// isAwaited reports whether a pool waits for the stop until it is over.
func (s *Stop) isAwaited() bool { return (s.Cause == CausePressure || s.Awaited) && !s.Released }

// Ordered returns the stops that no pool waits for, that are not over and whose outcome is not recorded, oldest first.
func (r *Restraint) Ordered() (stops []Stop) {
	for i := range r.stops {
		if s := &r.stops[i]; !s.isAwaited() && !s.Over && s.Pass != 0 {
			stops = append(stops, *s)
		}
	}
	return stops
}
