package scenario

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// disk returns the scenarios about bytes and inodes of the node's only filesystem.
func disk() []Scenario {
	return []Scenario{
		{
			Name: "images", What: "the filesystem fills with unused images: as many as needed are pruned, nobody is stopped",
			Profiles: []Profile{V2, V1New},
			Run:      images,
		},
		{
			Name: "layer", What: "a pod fills its writable layer: it is stopped, nobody else",
			Profiles: []Profile{V2, V2New},
			Run: func(n *Node) {
				n.fill(policy.ImageFSAvailable, 25)
				p := n.Run(lab.PodSpec{Name: "writer"}, "fill", "-path", "/data/fill", "-mib", "2048", "-rate", "40")
				n.Stopped(p, "hard", policy.ImageFSAvailable, policy.NodeFSAvailable, policy.ContainerFSAvailable)
				n.Shell("rm /ballast")
			},
		},
		{
			Name: "layer-full", What: "a pod fills its writable layer faster than it can be stopped, to the last byte: it is stopped, nobody else",
			Profiles: []Profile{V2, V1New},
			Run: func(n *Node) {
				p := n.Run(lab.PodSpec{Name: "writer"}, "fill", "-path", "/data/fill", "-mib", "2048", "-rate", "4000")
				n.Stopped(p, "hard", policy.ImageFSAvailable, policy.NodeFSAvailable, policy.ContainerFSAvailable)
				n.Until("the space to be back", func() bool { return n.share(policy.NodeFSAvailable) > 15 })
			},
		},
		{
			Name: "inodes", What: "a pod takes all inodes: it is stopped, nobody else",
			Profiles: []Profile{V2},
			Run: func(n *Node) {
				p := n.Run(lab.PodSpec{Name: "scatterer"}, "inodes", "-dir", "/data", "-count", "100000")
				n.Stopped(p, "hard", policy.ImageFSInodesFree, policy.NodeFSInodesFree, policy.ContainerFSInodesFree)
			},
		},
		{
			Name: "disk-full", What: "not one byte is left, criguard's own directory is on that disk, and a pod leaks: it is stopped, nobody else",
			Profiles: []Profile{V2},
			Run:      full,
		},
		{
			Name: "read-only", What: "the root filesystem turns read-only, criguard starts on it, and a pod leaks: it is stopped",
			Profiles: []Profile{V2},
			Run:      readOnly,
		},
		{
			Name: "start-full", What: "/var/tmp cannot be mounted, not one byte is left, criguard starts, and a pod leaks: it is stopped",
			Profiles: []Profile{V2, V1},
			Run:      startFull,
		},
	}
}

func images(n *Node) {
	n.Shell(importing(SpareImages))
	const eager = "[images]\nmin_age = \"0s\"\nunused_grace = \"0s\"\nhold_after_runtime_restart = \"0s\"\nhigh = \"100%\"\nlow = \"99%\"\n"
	n.Configure(eager)
	before := n.Shell("ctr -n k8s.io images list -q name~=registry.example")
	n.fill(policy.ImageFSAvailable, 13)
	n.Until("images to be pruned", func() bool {
		return n.Shell("ctr -n k8s.io images list -q name~=registry.example") != before && n.share(policy.ImageFSAvailable) >= 15
	})
	n.NobodyStopped(3 * time.Second)
	n.Sayf("%d%% of imagefs available after pruning", n.share(policy.ImageFSAvailable))
	n.Shell("rm /ballast")
}

// fill leaves the given percentage of the root filesystem available.
func (n *Node) fill(signal policy.Signal, percent int64) {
	s := n.signal(signal)
	n.Shell(fmt.Sprintf("fallocate -l %d /ballast", s.Available-s.Capacity*percent/100))
}

// share returns the available percentage of a signal's capacity.
func (n *Node) share(signal policy.Signal) int64 {
	s := n.signal(signal)
	return 100 * s.Available / max(s.Capacity, 1)
}

func full(n *Node) {
	p, let := n.primed()
	// No pod fills the disk, so turn the disk thresholds off: this scenario does not test disk
	// evictions.
	n.Configure("[history]\ndir = \"/var/lib/criguard\"\n[eviction.hard]\n\"nodefs.available\" = \"0%\"\n\"imagefs.available\" = \"0%\"\n")
	n.Shell(fillUp)
	let()
	n.relieved(p)
	n.Shell("rm -f /ballast /ballast2")
}

// fillUp leaves not one byte of the root filesystem, not even of its reserve.
const fillUp = "dd if=/dev/zero of=/ballast bs=1M 2>/dev/null; dd if=/dev/zero of=/ballast2 bs=4k 2>/dev/null; true"

func startFull(n *Node) {
	p, let := n.primed()
	n.Write("/etc/systemd/system/var-tmp.mount", "[Mount]\nWhat=/absent\nWhere=/var/tmp\nType=none\nOptions=bind\n")
	n.Configure("[eviction.hard]\n\"nodefs.available\" = \"0%\"\n\"imagefs.available\" = \"0%\"\n")
	n.Shell("systemctl daemon-reload")
	n.Shell(fillUp)
	n.Shell("systemctl restart criguard")
	n.settled()
	let()
	n.relieved(p)
	n.Shell("rm -f /ballast /ballast2 /etc/systemd/system/var-tmp.mount && systemctl daemon-reload")
}

func readOnly(n *Node) {
	p, let := n.primed()
	n.Shell("echo u >/proc/sysrq-trigger")
	n.Until("a read-only root", func() bool { _, err := shell("touch /probe"); return err != nil })
	n.Shell("systemctl restart criguard")
	n.settled()
	let()
	n.relieved(p)
	n.Shell("mount -o remount,rw /")
}
