package guard

import (
	"testing"

	"github.com/criguard/criguard/policy"
)

// Where memory or PIDs come near a threshold, pods are listed more often; a disk is near
// its own on many a node for months.
func TestArmTellsWhatIsNear(t *testing.T) {
	hard := map[string]string{"memory.available": "100", "pid.available": "10%", "nodefs.available": "100", "nodefs.inodesFree": "100"}
	ts, err := policy.ParseThresholds(hard, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		signal    policy.Signal
		available int64
		near      bool
	}{
		{policy.MemoryAvailable, 200, false},
		{policy.MemoryAvailable, 199, true},
		{policy.PIDAvailable, 199, true},
		{policy.NodeFSAvailable, 101, false},
		{policy.NodeFSInodesFree, 101, false},
	} {
		var (
			k   nodeKernel
			obs policy.Observations
		)
		obs[c.signal] = policy.Observation{Available: c.available, Capacity: 1000, Status: policy.OK}
		k.Arm(ts, &obs)
		if k.near.Load() != c.near {
			t.Errorf("%s of 1000: %d available is near: %t", c.signal, c.available, !c.near)
		}
	}
}
