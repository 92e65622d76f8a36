package guard

import (
	"context"
	"errors"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// Pauses between two listings of the pods.
const (
	nearPause = 2 * time.Second // while a threshold is met or near
	downPause = time.Second     // while the runtime does not answer
	// hintedPauses is the pause in intervals while the runtime's events hint at changes. By default it is
	// longer than a minute: garbage collection lists the pods once a minute anyway, and listing a hundred
	// is most of the work of an idle service.
	hintedPauses = 7
)

// listPause returns the pause until the next listing: shorter near a threshold, longer if the runtime's
// events hint at changes.
func (s *Service) listPause() time.Duration {
	if s.host.lister.Current().Err != nil {
		return downPause
	}
	if s.host.kernel.Near() {
		return min(nearPause, s.host.interval())
	}
	if s.host.hinted() {
		return hintedPauses * s.host.interval()
	}
	return s.host.interval()
}

// eventsPause is the minimum gap between two attempts to open a stream of events. A shorter one gains
// nothing: a listing is due after that time anyway.
const eventsPause = 10 * time.Second

// watchEvents takes the runtime's events as hints to list, until ctx ends. It subscribes only if that does
// not take events away from other subscribers. The start and end of a stream are hints, too: events in
// between are lost, and without a stream the pause between listings is short.
func (h *host) watchEvents(ctx context.Context, relist func()) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		pause.Reset(eventsPause)
		client, err := h.conn.Client()
		if _, v := h.conn.Version(); err != nil || !v.EventsShareable() {
			continue
		}
		h.subscribed.Store(int64(h.kernel.Now()))
		relist()
		for _, err := range client.Events(ctx) {
			if errors.Is(err, cri.ErrUnsupported) {
				pause.Reset(time.Hour) // switched off, the default on CRI-O
			}
			if err != nil {
				break
			}
			relist()
		}
		h.subscribed.Store(0)
		relist()
	}
}

// hinted reports whether the runtime sends events. A stream counts once it has lasted for eventsPause,
// because a runtime without events ends it at once.
func (h *host) hinted() bool {
	since := time.Duration(h.subscribed.Load())
	return since != 0 && h.kernel.Now()-since >= eventsPause
}

// listed handles every listing, in the lister's goroutine.
func (s *Service) listed(inv inventory.Inventory) {
	s.host.kernel.Sweep(inv.Pods)
	hint(s.look)
	s.metrics.Inventory(inv)
	endpoint, v := s.host.conn.Version()
	was := s.lastInv
	s.lastInv = inv.Err
	switch {
	case inv.Err != nil && (s.once("runtime") || was == nil):
		s.log.Warn("runtime unavailable, continuing with kernel signals", systemd.EventKey, systemd.EventRuntimeDown,
			"action", "runtime", "reason", inv.Err.Error())
		hint(s.repace) // the next listing is due sooner
	case inv.Err == nil && (s.once("runtime") || was != nil || endpoint != s.lastAt):
		s.log.Info("runtime available", systemd.EventKey, systemd.EventRuntimeUp, "action", "runtime", "endpoint", endpoint,
			"runtime", v.String(), "pods", len(inv.Pods))
		s.wake("runtime") // the pods' growth is measured from now on
		s.gc.Begin()
	}
	if inv.Err == nil {
		s.lastAt = endpoint
		if s.host.kernel.Near() {
			s.wake("runtime") // a stop may wait for an unlisted pod
		}
	}
	if inv.Err == nil || !s.settled.Load() { // a listing that fails, each second, takes no memory
		s.freeSoon()
	}
}

// freeAfter is how long after a listing or a large answer its memory is released, with that of all others in
// the meantime.
const freeAfter = 2 * time.Second

// freeSoon returns the memory of a listing or a large answer to the kernel. Listing a hundred pods takes more
// memory than everything that is kept, but releasing it takes longer than the listing. So it does that once for
// many, and not near a threshold, when the processors are needed for more important work. The first time, it also
// returns the pages of the program that only the start has used, about 2 MiB.
func (s *Service) freeSoon() {
	if !s.freeing.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(freeAfter, func() {
		s.freeing.Store(false)
		switch {
		case s.host.kernel.Near():
		case s.settled.CompareAndSwap(false, true):
			s.lockMemory()
		default:
			s.opt.Machine.FreeMemory()
		}
	})
}

// warnAbsent logs once when the node does not provide a configured signal, and once when the signal can be
// observed again. It logs nothing while the answer is only a moment away or depends on a runtime that is
// away.
func (s *Service) warnAbsent(obs *policy.Observations, reason func(policy.Signal) error) {
	for _, t := range s.guard.Config().Eviction.Thresholds {
		name := t.Signal.String()
		if obs[t.Signal].Status == policy.OK {
			if _, absent := s.warned.LoadAndDelete(name); absent {
				s.log.Info("signal available again", systemd.EventKey, systemd.EventSignalBack,
					"action", "observe", "signal", name)
			}
			continue
		}
		why := reason(t.Signal)
		soon := errors.Is(why, node.ErrNotYet) || errors.Is(why, disk.ErrNoLayout) || errors.Is(why, disk.ErrNoPath) && s.host.lister.Current().Err != nil
		if soon || time.Since(s.started) < 2*s.guard.Config().Eviction.StallWindow || !s.once(name) {
			continue
		}
		s.log.Warn("signal unavailable, threshold not in force", systemd.EventKey, systemd.EventSignalAbsent,
			"action", "observe", "signal", name, "reason", why.Error())
	}
}

// warnSwap logs once that the swap of pods is not known, although a threshold of swap is set.
func (s *Service) warnSwap() {
	if note := s.guard.SwapNote(s.host.kernel.SwapUnaccounted()); note != "" && s.once("swap of pods") {
		s.log.Warn("the swap of pods is unknown", systemd.EventKey, systemd.EventDegraded,
			"action", "observe", "signal", policy.SwapAvailable.String(), "reason", note)
	}
}

// watchMounts looks at the mounts after each listing, until ctx ends, and logs once what is missing.
func (s *Service) watchMounts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.look:
		}
		for _, text := range s.host.lookAtMounts(ctx) {
			if s.once(text) {
				s.log.Warn("node not fully visible", systemd.EventKey, systemd.EventDegraded, "action", "mount", "reason", text)
			}
		}
	}
}
