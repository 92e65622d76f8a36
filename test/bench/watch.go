package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// sighting is what was seen of one breach. Times are on CLOCK_MONOTONIC; 0 = not
// seen.
type sighting struct {
	crossed   time.Duration // the level was crossed, between two samples by how far each was off
	taken     int64         // what the hog had taken by the first sample below the level
	last      time.Duration // the hog took its last
	dead      time.Duration // its process was gone
	relieved  time.Duration // the level was reached again for good
	overshoot int64         // how far below the level it went, bytes
	samples   int
}

// spoiled tells a breach that shows nothing, because others on the machine took or gave
// back as much as the hog meanwhile: it was not the hog that crossed the level, or its
// end was not what relieves it.
func (s *sighting) spoiled(headroom int64) bool {
	return s.crossed == 0 || s.taken < headroom*mib/2 || s.taken > 2*headroom*mib+64*mib || s.relieved == 0
}

const (
	// reliefLag is how long after the hog's end its memory may be counted as used.
	reliefLag   = 100 * time.Millisecond
	sampleEvery = 500 * time.Microsecond
	tryTimeout  = 20 * time.Second
)

// watch samples what is available until the hog is dead and the level reached
// again. It has a thread to itself, of the highest priority that there is: it sleeps
// nearly all the time, and what it sees must not depend on how busy the others are.
func watch(ctx context.Context, h *hog, level int64, available func() (int64, error)) (sighting, error) {
	type outcome struct {
		sighting
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		hurry()
		s, err := sample(ctx, h, level, available)
		done <- outcome{s, err}
	}()
	o := <-done
	return o.sighting, o.err
}

// hurry makes the thread run before all others and wake exactly. What is refused is
// done without.
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

// errNoBreach says that a try has shown nothing.
var errNoBreach = errors.New("no breach within the time for a try")

// between places the crossing between two samples.
func between(from, to time.Duration, above, below int64) time.Duration {
	if from == 0 {
		return to
	}
	return from + time.Duration(float64(to-from)*float64(above)/float64(above+below))
}

// wait sleeps, or waits for the hog's end if that comes first and is not known.
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
