package eviction

import (
	"context"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// Loop makes a pass when it is woken up and when the pacer's pause is over.
type Loop struct {
	Guard *Manager
	// Wakes announces that the node may have changed. Each value is a short word that names the cause.
	Wakes <-chan string
	// Calls are functions to run between two passes, in the loop's goroutine.
	Calls <-chan func()
	// After is called with every pass. It must not block.
	After func(*api.Pass)
	// Slept, if not nil, is called before the first pass after the machine slept, with how long.
	Slept func(time.Duration)
}

// Run makes passes until ctx ends. The first pass is immediate. Between two passes caused by wake-ups is at
// least minPause, however many arrive. A wake-up does not wait after a pass caused by the timer, which fires
// every few milliseconds near a threshold.
func (l *Loop) Run(ctx context.Context) {
	timer := time.NewTimer(maxPause)
	defer timer.Stop()
	var due time.Time // of the next pass that a wake-up causes
	now, awake := l.Guard.kernel.Now(), time.Now()
	for wake, ok := "start", ctx.Err() == nil; ok; wake, ok = l.wait(ctx, timer, due) {
		// Go's clock stands still while the machine sleeps (CLOCK_MONOTONIC), the time since boot goes on.
		if slept := l.Guard.kernel.Now() - now - time.Since(awake); slept >= sleepAtLeast {
			l.Guard.Slept(slept)
			if l.Slept != nil {
				l.Slept(slept)
			}
		}
		if late := time.Since(awake) - maxPause; late > 0 {
			l.Guard.samples.Late(late)
		}
		now, awake = l.Guard.kernel.Now(), time.Now()
		p := l.Guard.Pass(ctx, wake)
		if wake != byTimer {
			due = time.Now().Add(minPause)
		}
		l.After(&p)
		timer.Reset(l.Guard.Pause())
	}
}

// byTimer is the cause of a pass that no wake-up causes.
const byTimer = "timer"

// wait waits for the next pass and returns what causes it, or false if ctx has ended. It makes the calls that come before
// that. A wake-up that comes too soon after the last woken pass causes its pass when it is due.
func (l *Loop) wait(ctx context.Context, timer *time.Timer, due time.Time) (wake string, ok bool) {
	wake = byTimer
	for {
		var call func()
		woken, over := false, false
		select {
		case <-ctx.Done():
		case call = <-l.Calls:
		case wake = <-l.Wakes:
			woken = true
		case <-timer.C:
			over = true
		}
		l.Guard.linger()
		// Whatever came first, what has come by now is taken in this order. A pass that is due waits for one call at most.
		if call != nil || take(l.Calls, &call) {
			call()
			l.Guard.linger()
		}
		woken = take(l.Wakes, &wake) || woken
		over = take(timer.C, new(time.Time)) || over
		gap := time.Until(due)
		switch {
		case ctx.Err() != nil:
			return "", false
		case over, woken && gap <= 0:
			return wake, true
		case woken:
			timer.Reset(gap)
		}
	}
}

// take receives a value that is ready; false = there is none.
func take[T any](from <-chan T, to *T) bool {
	select {
	case *to = <-from:
		return true
	default:
		return false
	}
}

// Pause returns how long the loop may sleep after the last pass.
func (g *Manager) Pause() time.Duration {
	g.pacer.cpus = g.kernel.CPUs()
	g.pacer.see(&g.obs, g.kernel.Now())
	if g.again {
		return minPause
	}
	d := g.reclaimPause(g.pacer.pause(g.thresholds, g.pressure, &g.obs, g.cfg.Eviction.Interval), g.kernel.Now())
	if slices.ContainsFunc(g.flights, func(f *flight) bool { return f.ended != 0 }) {
		return min(d, jobPause) // the victim's bytes are being freed
	}
	return d
}

// Bounds of the pause between two passes. The timer never fires sooner than minPause after a pass.
const (
	minPause  = 5 * time.Millisecond
	maxPause  = time.Second
	heldPause = 250 * time.Millisecond // while a due threshold is held back
	// heldTasksPause is the shortest while a threshold of tasks is held: unlike a shortage of memory, one of tasks may last.
	heldTasksPause = 25 * time.Millisecond
	jobPause       = 10 * time.Millisecond // while waiting for the effect of a stop
)

// sleepAtLeast is how long the machine must have slept between two passes to make the samples too old. Less may be what
// passed between reading the two clocks.
const sleepAtLeast = time.Second

// unseenAtMost bounds how much of a time without a pass, or without a reading, counts for a grace period:
// 10 s, which is the kubelet's monitoring interval and ten times maxPause. A longer gap means that the node
// was suspended or a disk did not answer, so that no reading shows that the pressure lasted.
const unseenAtMost = 10 * maxPause

// Fill rates to assume at least, in bytes or tasks per second. A leak or a fork bomb that has just begun was not
// seen yet, so that the pauses reckon with what the CPUs can fault in or fork. The samples of the pods do not,
// because they cost more.
const (
	fillOfCPU  = 2 << 30
	fillOfCPUs = 32 << 30 // of all CPUs together: memory itself is the limit
	minFill    = 1 << 30
	taskFill   = 20_000
)

// fillMemory is how long a fill rate window lasts. A rate counts until the end of the next window.
const fillMemory = time.Minute

// fillSpan is the shortest time over which a fill rate is measured. The kernel adds up what each CPU has
// charged in lumps of megabytes: over 5 ms, one such lump would look like an impossibly fast fill.
const fillSpan = 50 * time.Millisecond

// pacer decides how long the loop may sleep: half the time in which the fastest possible fill would use up
// the headroom. It does no I/O: readings go in, a pause comes out.
type pacer struct {
	cpus          int
	last          [policy.SignalCount]policy.Observation
	memory, tasks fill
	window        time.Duration
}

// fill is how fast something fills up, per second.
type fill struct {
	rate  int64 // fastest in the current minute
	older int64 // fastest in the minute before
}

// fastest returns the fastest recent fill, 0 if none was seen.
func (f *fill) fastest() int64 { return max(f.rate, f.older) }

// of returns the fill of a signal, or nil for a signal whose fill the pauses do not follow: the kernel announces a
// stall, and disks take longer.
func (p *pacer) of(s policy.Signal) *fill {
	switch {
	case s == policy.PIDAvailable:
		return &p.tasks
	case s.IsMemoryAmount():
		return &p.memory
	default:
		return nil
	}
}

// see updates the fill rates from another reading of the signals.
func (p *pacer) see(obs *policy.Observations, now time.Duration) {
	if now-p.window >= fillMemory {
		for _, f := range []*fill{&p.memory, &p.tasks} {
			f.older, f.rate = f.rate, 0
		}
		p.window = now
	}
	for s := range policy.SignalCount {
		o, f := obs[s], p.of(s)
		if o.Status != policy.OK || f == nil {
			continue
		}
		if l := p.last[s]; l.Status == policy.OK && s.Comparable(l, o) {
			drop, dt := l.Available-o.Available, o.At-l.At
			if dt < fillSpan {
				continue
			}
			f.rate = max(f.rate, policy.PerSecond(drop, dt))
		}
		p.last[s] = o
	}
}

// pause returns how long the loop may sleep. For a met threshold, that is until its grace period ends, or
// heldPause if it is due. For another threshold, it is half the time in which the fastest fill could reach
// it.
func (p *pacer) pause(ts []policy.Threshold, pr policy.Pressure, obs *policy.Observations, interval time.Duration) time.Duration {
	d := min(maxPause, interval)
	for _, t := range ts {
		o := reachable(obs, t.Signal)
		if o.Status != policy.OK || p.of(t.Signal) == nil || pr.IsMet(t) {
			continue
		}
		d = min(d, p.untilNear(t.Signal, o.Available-t.Value.Of(o.Capacity), o.Capacity))
	}
	for _, m := range pr.Met {
		if m.Due {
			d = min(d, p.heldFor(reachable(obs, m.Signal), m.Signal))
		} else if !m.WarnOnly {
			d = min(d, m.Wait)
		} else if !m.Signal.IsStall() { // those wake the loop
			d = min(d, heldPause) // memory may fall below the stall floor
		}
	}
	return max(d, minPause)
}

// reachable returns the reading of a signal with what has to be used up before the signal falls far: memory before swap, which may be
// full for days.
func reachable(obs *policy.Observations, s policy.Signal) policy.Observation {
	o := obs[s]
	if m := obs[policy.MeminfoAvailable]; s == policy.SwapAvailable && m.Status == policy.OK {
		o.Available += m.Available
	}
	return o
}

// fastest returns the fastest fill of memory to reckon with where the CPUs do not count, in bytes per second.
func (p *pacer) fastest() int64 { return max(p.memory.fastest(), minFill) }

// untilNear returns half the time in which the fastest fill uses up the headroom above a threshold.
func (p *pacer) untilNear(s policy.Signal, headroom, capacity int64) time.Duration {
	rate := max(p.fastest(), min(int64(p.cpus)*fillOfCPU, fillOfCPUs))
	if s == policy.PIDAvailable {
		// From further away, even the fastest fill does not reach the threshold within the longest pause, and the next
		// pass sees it. So the usual limit of 32,768 tasks, most of them unused, costs an idle node nothing. A lower one is
		// that of the pods, whose end does not keep the node from forking, or of a node with less than 3 GiB of memory, which
		// makes the pauses about as short (threads-max).
		if rate = p.tasks.fastest(); capacity >= taskFill {
			rate = max(rate, taskFill)
		}
		if headroom >= rate*int64(maxPause/time.Second) {
			return maxPause
		}
	}
	return time.Duration(float64(headroom) / (2 * float64(rate)) * float64(time.Second))
}

// heldFor returns how long the loop may sleep while a due threshold is held back: half the time in which
// the fastest fill that was seen uses up what is left. A pod may turn out to be the culprit meanwhile.
func (p *pacer) heldFor(o policy.Observation, s policy.Signal) time.Duration {
	f := p.of(s)
	if f == nil || f.fastest() <= 0 {
		return heldPause
	}
	pause := time.Duration(min(float64(o.Available)/(2*float64(f.fastest())), heldPause.Seconds()) * float64(time.Second))
	if s == policy.PIDAvailable {
		return max(pause, heldTasksPause)
	}
	return pause
}
