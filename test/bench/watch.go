package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// sighting is the observation of one breach. Times are on CLOCK_MONOTONIC; 0 means not seen.
type sighting struct {
	crossed   time.Duration // memory crossed the level, interpolated between two samples
	taken     int64         // the hog's memory at the first sample below the level
	last      time.Duration // the hog's last growth
	dead      time.Duration // its process ended
	relieved  time.Duration // memory rose above the level for good
	overshoot int64         // lowest point below the level, bytes
	samples   int
}

// spoiled reports whether the breach is meaningless because other processes took or freed as much
// memory as the hog: either the hog did not cross the level, or its end did not relieve it.
func (s *sighting) spoiled(headroom int64) bool {
	return s.crossed == 0 || s.taken < headroom*mib/2 || s.taken > 2*headroom*mib+64*mib || s.relieved == 0
}

const (
	// reliefLag is how long after the hog's end the kernel may still count its memory as used.
	reliefLag   = 100 * time.Millisecond
	sampleEvery = 500 * time.Microsecond
	tryTimeout  = 20 * time.Second
)

// watch samples the available memory until the hog is dead and memory is back above the level. It
// runs on its own thread with real-time priority: it sleeps most of the time, and its measurements
// must not depend on other load.
func watch(ctx context.Context, h *hog, level int64, available func() (int64, error)) (sighting, error) {
	type outcome struct {
		sighting
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		hurry()
		s, err := sample(ctx, h, level, available)
		done <- outcome{s, err}
	}()
	o := <-done
	return o.sighting, o.err
}

// hurry gives the thread real-time priority and exact timers. It ignores refusals.
func hurry() {
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

func sample(ctx context.Context, h *hog, level int64, available func() (int64, error)) (sighting, error) {
	var s sighting
	begin := monotonic()
	before, beforeAt := int64(0), time.Duration(0)
	for ctx.Err() == nil {
		ended, err := h.wait(sampleEvery, s.dead != 0)
		now := monotonic()
		if err != nil {
			return s, err
		}
		if ended {
			s.dead = now
			s.last = h.last()
		}
		have, err := available()
		if err != nil {
			return s, err
		}
		s.samples++
		if have < level {
			if s.crossed == 0 {
				s.crossed, s.taken = between(beforeAt, now, before-level, level-have), h.taken()
			}
			s.relieved = 0
			s.overshoot = max(s.overshoot, level-have)
		} else if s.crossed != 0 && s.relieved == 0 {
			s.relieved = now
		}
		if s.dead != 0 && (s.relieved != 0 || s.crossed == 0 || now-s.dead > reliefLag) {
			return s, nil
		}
		if now-begin > tryTimeout {
			return s, fmt.Errorf("%w: the hog took %d MiB; the level was crossed: %v; the hog is dead: %v",
				errNoBreach, h.taken()/mib, s.crossed != 0, s.dead != 0)
		}
		before, beforeAt = have, now
	}
	return s, ctx.Err()
}

// errNoBreach means that a try had no result.
var errNoBreach = errors.New("no breach within the time for a try")

// between interpolates the time of the crossing between two samples.
func between(from, to time.Duration, above, below int64) time.Duration {
	if from == 0 {
		return to
	}
	return from + time.Duration(float64(to-from)*float64(above)/float64(above+below))
}

// wait sleeps, or returns earlier if the hog ends and its end is not known yet.
func (h *hog) wait(d time.Duration, dead bool) (ended bool, err error) {
	spec := unix.NsecToTimespec(d.Nanoseconds())
	var polls []unix.PollFd
	if !dead {
		polls = []unix.PollFd{{Fd: int32(h.pidfd), Events: unix.POLLIN}}
	}
	n, err := unix.Ppoll(polls, &spec, nil)
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}

func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}
