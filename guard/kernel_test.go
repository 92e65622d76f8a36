package guard

import (
	"testing"

	"github.com/criguard/criguard/policy"
)

// Where memory or PIDs come near a threshold, pods are listed more often; a disk is near
// its own on many a node for months, and is read with each look then.
func TestArmTellsWhatIsNear(t *testing.T) {
	hard := map[string]string{"memory.available": "100", "pid.available": "10%", "nodefs.available": "100", "nodefs.inodesFree": "100"}
	ts, err := policy.ParseThresholds(hard, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		signal    policy.Signal
		available int64
		status    policy.Status
		near      bool
		calm      bool
	}{
		{policy.MemoryAvailable, 200, policy.OK, false, true},
		{policy.MemoryAvailable, 199, policy.OK, true, true},
		{policy.MemoryAvailable, 0, policy.Failed, false, true},
		{policy.PIDAvailable, 199, policy.OK, true, true},
		{policy.NodeFSAvailable, 200, policy.OK, false, true},
		{policy.NodeFSAvailable, 199, policy.OK, false, false},
		{policy.NodeFSInodesFree, 101, policy.OK, false, false},
		{policy.NodeFSInodesFree, 0, policy.Failed, false, false},
	} {
		k := nodeKernel{disks: &diskReader{}}
		var obs policy.Observations
		obs[c.signal] = policy.Observation{Available: c.available, Capacity: 1000, Status: c.status}
		k.Arm(ts, &obs)
		if k.near.Load() != c.near {
			t.Errorf("%s of 1000: %d available is near: %t", c.signal, c.available, !c.near)
		}
		if k.disks.calm != c.calm {
			t.Errorf("%s of 1000: %d available is calm: %t", c.signal, c.available, !c.calm)
		}
	}
}
