package reclaim

import (
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
)

// The kubelet's own tests of its sandbox garbage collector (O1 to O4), and the necessary differences on
// a node without a kube API.
func TestSelectSandboxes(t *testing.T) {
	t.Parallel()
	later := epoch.Add(time.Minute)
	now := Moment{2 * time.Hour, epoch.Add(24 * time.Hour)}
	young := now.Wall.Add(-time.Second)
	policy := ContainerPolicy{MinAge: time.Minute, MaxPerContainer: 1, Max: -1}
	pressure := policy
	pressure.Finished = true
	of := func(pod, sandbox string) cri.Container {
		c := container("c-"+sandbox, pod, "c", epoch)
		c.SandboxID = sandbox
		return c
	}
	tests := []struct {
		name       string
		sandboxes  []cri.Sandbox
		containers []cri.Container
		policy     ContainerPolicy
		left       []string
	}{
		{"O1 of a deleted pod: differs, who is deleted cannot be known, the newest stays", []cri.Sandbox{sandbox("a", "p", false, epoch)}, nil, policy, []string{"a"}},
		{"O1 under pressure: as the kubelet", []cri.Sandbox{sandbox("a", "p", false, epoch)}, nil, pressure, nil},
		{"O2 ready", []cri.Sandbox{sandbox("a", "p", true, epoch)}, nil, pressure, []string{"a"}},
		{"O3 one of each of two pods", []cri.Sandbox{sandbox("a", "p", true, epoch), sandbox("b", "q", false, epoch)}, nil, policy, []string{"a", "b"}},
		{"O4 the newer of two", []cri.Sandbox{sandbox("new", "p", false, later), sandbox("old", "p", false, epoch)}, nil, policy, []string{"new"}},
		{"an older one of a pod whose newest is ready", []cri.Sandbox{sandbox("new", "p", true, later), sandbox("old", "p", false, epoch)}, nil, policy, []string{"new"}},
		{"an attempt is newer whatever the clock said", []cri.Sandbox{
			{ID: "first", UID: "p", CreatedAt: later}, {ID: "second", UID: "p", Attempt: 1, CreatedAt: epoch},
		}, nil, policy, []string{"second"}},
		{"a ready one is the newest whatever its stamps", []cri.Sandbox{
			{ID: "ready", UID: "p", Ready: true, CreatedAt: epoch}, {ID: "dead", UID: "p", Attempt: 3, CreatedAt: later},
		}, nil, policy, []string{"ready"}},
		{"with a container", []cri.Sandbox{sandbox("new", "p", false, later), sandbox("old", "p", false, epoch)},
			[]cri.Container{of("p", "old")}, pressure, []string{"new", "old"}},
		{"the last of a pod whose container names another sandbox", []cri.Sandbox{sandbox("a", "p", false, epoch)},
			[]cri.Container{of("p", "lost")}, pressure, []string{"a"}},
		{"young", []cri.Sandbox{sandbox("new", "p", false, young), sandbox("old", "p", false, young)}, nil, pressure, []string{"new", "old"}},
		{"pods of different names are different pods, also with the same UID", []cri.Sandbox{
			{ID: "a", UID: "copied", Namespace: "default", Name: "a", CreatedAt: epoch}, {ID: "b", UID: "copied", Namespace: "default", Name: "b", CreatedAt: later},
			{ID: "c", UID: "copied", Namespace: "other", Name: "b", Ready: true, CreatedAt: later},
		}, nil, policy, []string{"a", "b", "c"}},
		{"without a UID each is a pod of its own", []cri.Sandbox{{ID: "a", CreatedAt: epoch}, {ID: "b", CreatedAt: epoch}}, nil, policy, []string{"a", "b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inv := inventory{Containers: tt.containers, Sandboxes: tt.sandboxes}
			var seen sightings
			seen.see(inv, Moment{time.Hour, now.Wall.Add(-time.Hour)})
			if tt.name == "young" {
				seen = sightings{quiet: map[string]time.Duration{podKey(tt.sandboxes[0]): time.Hour}}
			}
			sel := selectSandboxes(inv, tt.policy, &seen, now)
			left := []string{}
			for _, b := range tt.sandboxes {
				if why(sel.Remove, b.ID) == "not listed" {
					left = append(left, b.ID)
				}
			}
			equal(t, "left", left, tt.left)
		})
	}
}
