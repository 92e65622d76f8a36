package cluster_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/cluster"
	"github.com/criguard/criguard/test/lab"
)

// A pod that fills the node's disk is stopped, and no other, wherever it writes: in a volume, in its
// logs or in its writable layer. The kubelet then removes what a pod with restartPolicy Never has
// written.
func TestDisk(t *testing.T) {
	const size, room, writes = 1024 * mib, 150 * mib, "220"
	n := newNodeWith(t, lab.Options{NodeFSBytes: size}, cluster.Options{})
	before := n.room()
	n.create(cluster.Workload("innocent", cluster.Resources{}, "fill", "-path", "/ctl/fill", "-mib", "40"))
	n.until("innocent to have written", func() bool { return n.room() <= before-40*mib })
	free := n.room()
	n.startGuardOn(policy.NodeFSAvailable, room, 1, "[images]\nprune = \"never\"\n")
	for i, c := range []struct{ name, path string }{{"volume", "/ctl/fill"}, {"logs", "/dev/stdout"}, {"layer", "/fill"}} {
		t.Run(c.name, func(t *testing.T) {
			n := n.on(t)
			p := cluster.Workload(c.name, cluster.Resources{}, "fill", "-path", c.path, "-mib", writes)
			p.Spec.RestartPolicy = "Never"
			n.check(n.cluster.CreatePod(n.Context(), p))
			n.until("a stop of "+c.name, func() bool { return len(n.settled()) > i })
			if stop := n.settled()[i]; stop.Pod != "default/"+c.name || !stop.Result.Emptied {
				t.Fatalf("stopped %s, want default/%s: %s", stop.Pod, c.name, stop.Reason)
			}
			n.until("the pod to have failed", func() bool { return n.pod(c.name).Status.Phase == "Failed" })
			n.check(n.cluster.DeletePod(n.Context(), "default", c.name))
			n.guard.Within(tidy, "the disk to be as empty as before", func() bool { return n.room() > free-10*mib })
			n.listed(1)
		})
	}
	n.untouched()
	n.removed()
}

// room returns the available space of the node's filesystem, in bytes.
func (n *node) room() int64 {
	n.Helper()
	var fs unix.Statfs_t
	n.check(unix.Statfs(n.lab.KubeletRoot(), &fs))
	return int64(fs.Bavail) * int64(fs.Bsize) //nolint:gosec,unconvert // a small filesystem; 32 bits on arm
}

// Beside the image collection of the kubelet, criguard removes images too, and neither removes one that
// a pod needs.
func TestImages(t *testing.T) {
	const size = 20 * mib
	n := newNodeWith(t, lab.Options{NodeFSBytes: 1024 * mib}, cluster.Options{ImageGCHigh: 60, ImageGCLow: 50})
	image := func(i int) lab.ImageSpec {
		return lab.ImageSpec{Name: fmt.Sprintf("registry.local/image-%d:1", i), ExtraBytes: size, RepoDigest: true}
	}
	_, err := n.lab.ImportImages(n.Context(), image(0))
	n.check(err)
	user := cluster.Workload("user", cluster.Resources{}, "pause")
	user.Spec.Containers[0].Image = image(0).Name
	n.create(user, cluster.Workload("innocent", cluster.Resources{}, "pause"))
	n.startGuardOn(policy.NodeFSAvailable, 300*mib, 2, "[images]\nmin_age = \"0s\"\nunused_grace = \"0s\"\nhold_after_runtime_restart = \"0s\"\n")
	removed := func() (sum int) {
		for _, p := range n.history() {
			for i := range p.Reclaimed {
				sum += p.Reclaimed[i].Removed()
			}
		}
		return sum
	}
	for i := 1; removed() == 0; i++ {
		if i > 40 {
			t.Fatal("criguard removed no image")
		}
		_, err := n.lab.ImportImages(n.Context(), image(i))
		n.check(err)
	}
	n.create(func() cluster.Pod {
		again := cluster.Workload("again", cluster.Resources{}, "pause")
		again.Spec.Containers[0].Image = image(0).Name
		return again
	}())
	if stops := n.stops(); len(stops) > 0 {
		t.Errorf("stopped %+v", stops)
	}
	n.untouched()
}
