package guard

import (
	"slices"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

// ByMemory says what a ranking for swap rests on where no better is known.
const ByMemory = "by memory, for the kernel does not account the swap of pods"

// swapNote says that a threshold for swap stops pods by what is not quite what it is
// about; "" = it does not.
func (g *Guard) swapNote(k *nodeKernel) string {
	set := slices.ContainsFunc(g.thresholds, func(t policy.Threshold) bool { return t.Signal == policy.SwapAvailable })
	if !set || g.obs[policy.SwapAvailable].Status != policy.OK || !k.noSwap.Load() {
		return ""
	}
	return "who is stopped for " + policy.SwapAvailable.String() + " is chosen " + ByMemory + " (swapaccount=1 on the kernel's command line)"
}

// warnSwap says that once.
func (s *Service) warnSwap() {
	if note := s.guard.swapNote(s.node.kernel); note != "" && s.once("swap of pods") {
		s.log.Warn("a configured signal ranks pods by something else", systemd.EventKey, systemd.EventDegraded,
			"action", "observe", "signal", policy.SwapAvailable.String(), "reason", note)
	}
}
