package guard

import (
	"errors"
	"runtime/debug"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// Pauses between two listings of the pods.
const (
	nearPause = 2 * time.Second // while a threshold is met or near
	downPause = time.Second     // while the runtime does not answer
	// hintedPauses is how many intervals there are to a pause while the runtime's events
	// hint at changes: to list a hundred pods is most of what an idle guard does.
	hintedPauses = 6
)

// listPause is how long until the next listing: the nearer a threshold, the
// shorter, and the longer where the runtime hints at changes.
func (s *Service) listPause() time.Duration {
	if s.node.lister.Current().Err != nil {
		return downPause
	}
	if s.node.kernel.near.Load() {
		return min(nearPause, s.node.interval())
	}
	if s.node.hinted() {
		return hintedPauses * s.node.interval()
	}
	return s.node.interval()
}

// listed hears of every listing, in the lister's goroutine.
func (s *Service) listed(inv Inventory) {
	s.node.kernel.Track(inv.Pods)
	s.metrics.Inventory(inv)
	endpoint, v := s.node.conn.Version()
	was := s.lastInv
	s.lastInv = inv.Err
	switch {
	case inv.Err != nil && (s.once("runtime") || was == nil):
		s.log.Warn("container runtime does not answer; memory, disks and PIDs are watched on", systemd.EventKey, systemd.EventRuntimeDown,
			"action", "runtime", "reason", inv.Err.Error())
	case inv.Err == nil && (s.once("runtime") || was != nil || endpoint != s.lastAt):
		s.log.Info("container runtime answers", systemd.EventKey, systemd.EventRuntimeUp, "action", "runtime", "endpoint", endpoint,
			"runtime", v.String(), "pods", len(inv.Pods))
	}
	if inv.Err == nil {
		s.lastAt = endpoint
	}
	// A listing of a hundred pods takes more than all that is kept. To give it back takes
	// longer than to list, though: not after each of those that pods' starts hint at, nor
	// when the processors are needed for what matters.
	if now := time.Now(); now.Sub(s.freed) >= freeEvery && !s.node.kernel.near.Load() {
		s.freed = now
		debug.FreeOSMemory()
	}
}

// freeEvery is the least time between two times that memory is given back after listing.
const freeEvery = 2 * time.Second

// warnAbsent says once of each configured signal that the node does not have it, and once when
// it can be observed after all. What is known in a moment, or when a runtime is back that is
// away, is no news.
func (s *Service) warnAbsent() {
	for _, t := range s.guard.cfg.Eviction.Thresholds {
		name := t.Signal.String()
		if s.guard.obs[t.Signal].Status == policy.OK {
			if _, absent := s.warned.LoadAndDelete(name); absent {
				s.log.Info("a configured signal can be observed again; its threshold is watched", systemd.EventKey, systemd.EventSignalBack,
					"action", "observe", "signal", name)
			}
			continue
		}
		why := s.node.kernel.reasons[t.Signal]
		soon := errors.Is(why, errNoLayout) || errors.Is(why, errNoPath) && s.node.lister.Current().Err != nil
		if soon || time.Since(s.started) < 2*s.guard.cfg.Eviction.StallWindow || !s.once(name) {
			continue
		}
		s.log.Warn("a configured signal cannot be observed; its threshold is not watched", systemd.EventKey, systemd.EventSignalAbsent,
			"action", "observe", "signal", name, "reason", s.node.kernel.Reason(t.Signal))
	}
}
