package policy

import "time"

// unseenAfter is how long nobody must have asked for that to be a time in which nobody looked: the machine slept, the service was in
// observe mode, or it was not running.
const unseenAfter = time.Minute

// at moves the restraint to another time. If the clock went back, it shifts all recorded times back as well.
func (r *Restraint) at(now time.Duration) {
	switch d := now - r.now; {
	case d < 0:
		r.shift(-d)
	case d > unseenAfter && !r.following:
		r.unseen(d)
	}
	r.now = now
	for p := range r.breakers {
		if b := &r.breakers[p]; b.counts() && now-b.Seen > r.remembers() { // also without back-off
			*b = breaker{}
		}
	}
}

// FollowTrace makes a time in which nobody asks count: between two lines of a trace, the state of the first one lasts.
func (r *Restraint) FollowTrace(on bool) { r.following = on }

// unseen leaves out a time in which nobody looked. It shows neither that a pool recovered, nor that a pod is not back.
func (r *Restraint) unseen(d time.Duration) {
	for p := range r.breakers {
		if b := &r.breakers[p]; b.counts() {
			b.Seen += d
			if d > unseenAfter {
				b.Last = nil // what is used outside the pods may have grown without them
			}
		}
	}
	for i := range r.stops {
		if s := &r.stops[i]; s.met > 0 {
			s.met += d
		}
	}
}

// shift moves the recorded times back.
func (r *Restraint) shift(back time.Duration) {
	for i := range r.stops {
		r.stops[i].At -= back
		r.stops[i].Taken -= back
		if s := &r.stops[i]; s.met > 0 {
			s.met = max(s.met-back, 1)
		}
	}
	for uid, l := range r.Limited {
		l.Seen -= back
		r.Limited[uid] = l
	}
	for p := range r.breakers {
		r.breakers[p].Seen -= back
		for i := range r.breakers[p].Last {
			r.breakers[p].Last[i].At -= back
		}
	}
}
