package cluster_test

import (
	"maps"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/test/cluster"
)

// A stop does not need the kubelet: it works while the kubelet is frozen or down. The kubelet then
// restarts the stopped pod, and no other.
func TestKubeletAway(t *testing.T) {
	n := newNode(t)
	n.create(cluster.Workload("innocent", cluster.Resources{}, "hog", "-mib", "100"), leak("frozen", "Always"), leak("down", "Always"))
	n.startGuard(3, "")
	for _, c := range []struct {
		name     string
		away, ok func() error
	}{
		{"frozen", n.cluster.PauseKubelet, n.cluster.ResumeKubelet},
		{"down", n.cluster.StopKubelet, func() error { return n.cluster.StartKubelet(t.Context()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.on(t)
			before := n.containers()
			n.check(c.away())
			pod := n.leakUntilStopped(c.name)
			if got := n.pod(c.name); !got.Runs() {
				t.Errorf("the kubelet reports %+v", got.Status)
			}
			n.listed(2) // the sandbox is stopped
			n.check(c.ok())
			n.again(pod)
			if got := n.pod(c.name).Restarts(); got != 1 { // it never saw the dead container in a sandbox that was ready
				t.Errorf("restarted %d times, want once", got)
			}
			n.sameContainers(before, c.name)
			n.listed(3)
		})
	}
	n.untouched("frozen", "down")
}

// A stop in its grace period goes on while the kubelet is frozen, down or restarted in the middle of it: criguard stops the pod
// once, the pod ends by itself, and only it is started again. The kubelet may return between the end of the container and that
// of its sandbox. It then restarts the container in the old sandbox first, so it may count two restarts and wait 10 s.
func TestKubeletLeavesDuringAStop(t *testing.T) {
	n := newNode(t)
	slow := func(name string) cluster.Pod {
		return cluster.Workload(name, cluster.Resources{}, "pause", "-term-delay", "6s")
	}
	n.create(cluster.Workload("innocent", cluster.Resources{}, "pause"), slow("frozen"), slow("down"), slow("restarted"))
	n.startGuard(4, "")
	start := func() error { return n.cluster.StartKubelet(t.Context()) }
	for _, c := range []struct {
		name     string
		away, ok func() error
	}{
		{"frozen", n.cluster.PauseKubelet, n.cluster.ResumeKubelet},
		{"down", n.cluster.StopKubelet, start},
		{"restarted", func() error {
			if err := n.cluster.StopKubelet(); err != nil {
				return err
			}
			return start()
		}, func() error { return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := n.on(t)
			pod, before, settled := n.pod(c.name), n.containers(), len(n.settled())
			_, err := n.guard.Client().Command(t.Context(), api.Command{Command: api.CommandStop, Pod: "default/" + c.name, Grace: api.Duration(time.Minute)})
			n.check(err)
			n.check(c.away())
			n.until("the stop to settle", func() bool { return len(n.settled()) > settled })
			n.check(c.ok())
			if s := n.settled()[settled]; s.Pod != "default/"+c.name || !s.Result.Emptied || s.Result.Method != "runtime" || time.Duration(s.Result.EmptiedIn) < 5*time.Second {
				t.Errorf("settled %+v, %+v", s, s.Result)
			}
			n.again(pod)
			n.sameContainers(before, c.name)
			n.listed(4)
		})
	}
	if stops := n.stops(); len(stops) != 3 {
		t.Errorf("%d stops, want 3: %+v", len(stops), stops)
	}
	n.untouched("frozen", "down", "restarted")
	n.removed()
}

// sameContainers checks that all pods but one have the containers that they had before.
func (n *node) sameContainers(before map[string]string, but string) {
	n.Helper()
	after := n.containers()
	delete(before, but)
	delete(after, but)
	if !maps.Equal(before, after) {
		n.Errorf("other pods' containers were %v and are %v", before, after)
	}
}

// containers returns the IDs of the pods' containers, by pod.
func (n *node) containers() map[string]string {
	n.Helper()
	ids := map[string]string{}
	for name, p := range n.pods() {
		for _, c := range p.Status.ContainerStatuses {
			ids[name] += c.ContainerID
		}
	}
	return ids
}
