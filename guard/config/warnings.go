package config

import (
	"fmt"
	"slices"

	"github.com/criguard/criguard/policy"
)

// smallAmount is an amount of bytes below which a unit was probably forgotten.
const smallAmount = 1 << 20

// Notes returns remarks about a valid configuration: settings without effect, and effects that are
// easy to overlook.
func (c Config) Notes() []string {
	notes := slices.Clone(c.notes)
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if len(c.Files) == 0 {
		note("%s not found, using the defaults", DefaultPath)
	}
	ts := c.Eviction.Thresholds
	for _, soft := range ts {
		for _, hard := range ts {
			if soft.Kind == policy.Soft && hard.Kind == policy.Hard && soft.Signal == hard.Signal && neverAbove(soft.Value, hard.Value) {
				note("the soft threshold %s = %s is not above the hard threshold of %s, which is met first", soft.Signal, soft.Value, hard.Value)
			}
		}
	}
	for _, t := range ts {
		r := t.Signal.Resource()
		isBytes := (r == policy.ResourceMemory || r == policy.ResourceDisk) && !t.Value.IsPercent()
		if isBytes && t.Value.Of(0) < smallAmount {
			note("the %s threshold %s = %s is below 1Mi: an amount without a unit is in bytes", t.Kind, t.Signal, t.Value)
		}
		pruned := policy.Percent(100)
		if t.Signal == policy.ImageFSAvailable && t.Value.IsPercent() && c.Images.Prune != PruneNever &&
			share(t.Value) > share(pruned)-share(c.Images.High) {
			note("the %s threshold %s = %s is met before images.high = %s is reached: criguard removes unused images only under pressure", t.Kind, t.Signal, t.Value, c.Images.High)
		}
		if t.Signal.IsEvidence() && c.Eviction.StallFloor.IsZero() {
			note("eviction.stall_floor is 0: the %s threshold %s only causes warnings", t.Kind, t.Signal)
		}
	}
	if slices.Contains(c.Annotations.TrustedNamespaces, "*") {
		note(`annotations.trusted_namespaces contains "*": every pod can protect itself`)
	}
	return notes
}

// FileNotes returns those of Notes that are about the files themselves.
func (c Config) FileNotes() []string { return c.notes }

// neverAbove compares quantities of the same unit; for different units, the result would depend on
// the node.
func neverAbove(a, b policy.Quantity) bool {
	return a.IsPercent() == b.IsPercent() && share(a) <= share(b)
}
