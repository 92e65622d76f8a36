package eviction

import (
	"strings"
	"testing"

	"github.com/criguard/criguard/policy"
)

// A minimum reclaim that lifts the target to the capacity or above can never be met. It is ignored, and the status
// warns of it where the capacity is known.
func TestStatusWarnsOfAMinimumReclaimThatIsNeverMet(t *testing.T) {
	const never = "memory.available:hard: its minimum reclaim of %s can never be met and is ignored"
	for least, want := range map[string]string{ // the capacity is 16 GiB, and the threshold 1 GiB
		"15Gi": strings.Replace(never, "%s", "15Gi", 1), "94%": strings.Replace(never, "%s", "94%", 1), "15359Mi": "", "90%": "", "0": "",
	} {
		g, n := newManager(t, memoryHard+"[eviction.minimum_reclaim]\n\"memory.available\" = \""+least+"\"\n")
		warnings := func() string {
			return strings.Join(g.Status(func(policy.Signal) string { return "" }, false).Warnings, "; ")
		}
		if n.at(g, 0); warnings() != want {
			t.Errorf("%s: warnings %q, want %q", least, warnings(), want)
		}
		n.obs[policy.MemoryAvailable].Status = policy.Failed
		if n.at(g, 0); warnings() != "" {
			t.Errorf("%s of an unknown capacity: warnings %q", least, warnings())
		}
	}
}
