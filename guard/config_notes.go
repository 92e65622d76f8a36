package guard

import (
	"fmt"
	"slices"

	"github.com/criguard/criguard/policy"
)

// Notes says what is worth knowing of a configuration that is no mistake: what
// has no effect, or one that is easily overlooked.
func (c Config) Notes() []string {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if len(c.Files) == 0 {
		note("there is no %s: every default is in force", DefaultConfigPath)
	}
	ts := c.Eviction.Thresholds
	for _, soft := range ts {
		for _, hard := range ts {
			if soft.Kind == policy.Soft && hard.Kind == policy.Hard && soft.Signal == hard.Signal && neverAbove(soft.Value, hard.Value) {
				note("the soft threshold %s = %s is not above the hard one of %s, which acts first", soft.Signal, soft.Value, hard.Value)
			}
		}
	}
	for _, t := range ts {
		pruned := policy.Percent(100)
		if t.Signal == policy.ImageFSAvailable && t.Value.IsPercent() && c.Images.Prune != PruneNever &&
			share(t.Value) > share(pruned)-share(c.Images.High) {
			note("the %s threshold %s = %s is met before images.high = %s is reached: unused images go under pressure only", t.Kind, t.Signal, t.Value, c.Images.High)
		}
		if t.Signal.IsStall() && c.Eviction.StallFloor.IsZero() {
			note("eviction.stall_floor is 0: the %s threshold %s only warns", t.Kind, t.Signal)
		}
	}
	if slices.Contains(c.Annotations.TrustedNamespaces, "*") {
		note(`annotations.trusted_namespaces has "*": every pod may protect itself`)
	}
	return notes
}

// neverAbove compares quantities of one unit; others depend on the node.
func neverAbove(a, b policy.Quantity) bool {
	return a.IsPercent() == b.IsPercent() && share(a) <= share(b)
}
