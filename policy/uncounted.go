package policy

// HeldUncounted holds a stop back of which nothing tells whether it would help.
const HeldUncounted = "usage not counted"

// Uncounted reports whether the usage of no candidate of a ranking is known because the
// kernel does not count it, as without the memory controller (cgroup_disable=memory). The
// first is the first by priority or age then, and no cause. Where one's usage is known, or
// all of them could not be read for once, the ranking stands.
func Uncounted(ranked []Ranked) bool {
	uncounted := false
	for i := range ranked {
		r := &ranked[i]
		switch {
		case r.Excluded != "":
			return uncounted
		case r.Known:
			return false
		}
		uncounted = uncounted || r.Uncounted
	}
	return uncounted
}
