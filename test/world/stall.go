package world

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
)

// resource is what tasks may be stalled on.
type resource int

const (
	onMemory resource = iota
	onIO
	resources
)

var (
	stallWakes   = [resources]cgroup.Wake{cgroup.WakeMemoryStall, cgroup.WakeIOStall}
	stallSignals = [resources]policy.Signal{policy.MemoryStall, policy.IOStall}
	stallFiles   = [resources]string{"proc/pressure/memory", "proc/pressure/io"}
	stallText    = strings.ReplaceAll(nodetest.Stall(0), "total=0", "total=%d")
	stallNames   = [resources]string{"memory", "I/O"}
)

// stalls are the times in which all tasks at once were stalled (psi.rst).
type stalls struct {
	total  [resources]time.Duration // since boot
	slowed [resources]float64       // the share of time for which tasks are stalled, for another reason than the swapping of the kernel
	limit  [resources]float64       // a threshold of the service is met above this share; 0 = there is none
	above  [resources]time.Duration // when the share was last above the limit
	apart  [resources]time.Duration // when it was for another reason than the swapping of the kernel
}

// stallSpan is how far back a stall may lie by which the service sees a threshold as met: its window, and the time from one
// reading to the next. A step of the world is stallSlack of that window, by which the files lag.
const (
	stallSpan  = 4 * time.Second
	stallSlack = 0.05
)

// isMet reports whether the service may see a threshold for stalls as met.
func (s *stalls) isMet(now time.Duration) bool {
	for r := range resources {
		if s.limit[r] > 0 && s.above[r] > 0 && now-s.above[r] < stallSpan {
			return true
		}
	}
	return false
}

// stallsApart reports whether a signal is one for stalls, and tasks wait for another reason than the swapping of the kernel.
func (s *stalls) stallsApart(signal string, now time.Duration) bool {
	for r := range resources {
		if signal == stallSignals[r].String() {
			return s.apart[r] > 0 && now-s.apart[r] < stallSpan
		}
	}
	return false
}

// stall lets d pass for tasks of which the kernel keeps a share waiting while it swaps.
func (k *kernel) stall(d, now time.Duration, swapping float64) {
	for r := range resources {
		share := k.slowed[r]
		if r == onMemory {
			share = max(share, swapping)
		}
		if share > 0 && share >= k.limit[r]-stallSlack {
			if k.above[r] = now; share == k.slowed[r] {
				k.apart[r] = now
			}
		}
		k.total[r] += time.Duration(share * float64(d))
		k.waker.stalled(stallWakes[r], k.total[r], now)
	}
}

// trigger wakes when tasks were stalled for so long within a window.
type trigger struct {
	threshold, window time.Duration
	began, before     time.Duration // of the current window, and the total then
}

func (w *waker) AddStall(wake cgroup.Wake, threshold, window time.Duration) (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stalls[wake] = trigger{threshold: threshold, window: window}
	return window, nil
}

// stalled wakes if the total has risen by the threshold of a trigger within its window, once per window.
func (w *waker) stalled(wake cgroup.Wake, total, now time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, ok := w.stalls[wake]
	switch {
	case !ok:
		return
	case t.began == 0 || now-t.began >= t.window:
		t.began, t.before = now, total
	case total-t.before >= t.threshold:
		t.before = total + t.window // not again in this window
		w.wake(wake)
	}
	w.stalls[wake] = t
}

// stallsOf returns the thresholds for stalls of a seed, as lines of a configuration, and when tasks are stalled: in one of four
// seeds. It has dice of its own.
func stallsOf(seed uint64, length time.Duration) (lines []string, limit [resources]float64, happens []event) {
	d := diceOf(seed, 19)
	if !d.oneIn(4) {
		return nil, limit, nil
	}
	for r := range resources {
		if d.oneIn(3) {
			continue
		}
		stalled := d.between(10, 80)
		limit[r] = float64(stalled) / 100
		if d.oneIn(3) {
			lines = append(lines, fmt.Sprintf("eviction.soft.%q = \"%d%%\"", stallSignals[r], 100-stalled),
				fmt.Sprintf("eviction.soft_grace_period.%q = \"%ds\"", stallSignals[r], d.between(0, 20)))
		} else {
			lines = append(lines, fmt.Sprintf("eviction.hard.%q = \"%d%%\"", stallSignals[r], 100-stalled))
		}
		for range d.IntN(3) {
			share, at := float64(d.between(5, 95))/100, d.at(5*time.Second, length)
			happens = append(happens, event{at, func(w *World) {
				w.logf("tasks wait for %s for %.0f %% of the time", stallNames[r], share*100)
				w.slowed[r] = share
			}}, event{at + d.at(100*time.Millisecond, time.Minute), func(w *World) {
				w.logf("no task waits for %s any more", stallNames[r])
				w.slowed[r] = 0
			}})
		}
	}
	return lines, limit, happens
}
