package live_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
	"github.com/criguard/criguard/test/need"
)

// A stalled disk with the history on it does not hold the guard up: it keeps stopping pods and
// answering all commands, and in the end the file has everything.
func TestHistoryDiskStalls(t *testing.T) {
	n := newNode(t, lab.Runtimes()[0])
	disk := n.disk()
	large := n.pod(lab.PodSpec{Name: "large", MemoryRequest: 700 * mib, Containers: hog(600 * mib)})
	n.hogs(large)
	hogs := []*lab.RunningPod{
		n.pod(lab.PodSpec{Name: "first", Containers: leak(1024*mib, "800")}),
		n.pod(lab.PodSpec{Name: "second", Containers: leak(1024*mib, "800")}),
	}
	limit := n.available(policy.AllocatableMemoryAvailable) - headroom
	n.configure(config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(limit)}, history: disk.dir})
	s := n.startWith(3)
	thaw := disk.freeze()
	for _, p := range hogs {
		n.leakUntilDead(p, limit)
		n.ended(p)
		n.until("the threshold to be met no more", func() bool { return len(s.met()) == 0 })
	}
	n.until("the disk to be told of", func() bool {
		return strings.Contains(strings.Join(s.status().Warnings, "\n"), "does not answer")
	})
	n.until("both stops to settle", func() bool { return len(s.settled()) == 2 })
	if kept := disk.history(); kept != "" {
		n.Errorf("the disk was not frozen: %s", kept)
	}
	thaw()
	n.until("the stops to be in the file", func() bool {
		kept := disk.history()
		return strings.Contains(kept, `"pod":"default/first"`) && strings.Contains(kept, `"pod":"default/second"`)
	})
	n.until("the disk to be told of no more", func() bool { return len(s.status().Warnings) == 0 })
	n.alive(large)
}

// disk is a small ext4 filesystem that can be frozen.
type disk struct {
	*node
	dir string
}

func (n *node) disk() *disk {
	n.Helper()
	need.File(n, "/dev/loop-control")
	d := &disk{node: n, dir: filepath.Join(n.dir, "disk")}
	image := filepath.Join(n.dir, "disk.img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		n.Fatal(err)
	}
	if err := os.Truncate(image, 16*mib); err != nil {
		n.Fatal(err)
	}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		n.Fatal(err)
	}
	n.tool("mkfs.ext4", "-q", image)
	n.tool("mount", "-o", "loop", image, d.dir)
	n.Cleanup(func() { n.tool("umount", d.dir) })
	return d
}

// tool runs a program from Debian's essential packages.
func (n *node) tool(name string, args ...string) {
	n.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		n.Fatalf("%s: %v: %s(apt-get install e2fsprogs mount has it)", name, err, out)
	}
}

// freeze blocks every write, as on a hanging disk, until the returned function is called or the
// test ends.
func (d *disk) freeze() (thaw func()) {
	d.Helper()
	f, err := os.Open(d.dir)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { _ = f.Close() })
	control := func(request uint) error { return unix.IoctlSetInt(int(f.Fd()), request, 0) } //nolint:gosec // a descriptor is an int
	if err := control(fiFreeze); err != nil {
		d.Fatal(err)
	}
	thawed := false
	thaw = func() {
		if thawed {
			return
		}
		if err := control(fiThaw); err != nil {
			d.Error(err)
		}
		thawed = true
	}
	d.Cleanup(thaw)
	return thaw
}

// See FIFREEZE and FITHAW in linux/fs.h.
const fiFreeze, fiThaw = 0xc0045877, 0xc0045878

// history returns the content of the history file.
func (d *disk) history() string {
	d.Helper()
	b, err := os.ReadFile(filepath.Join(d.dir, "history.jsonl"))
	if err != nil && !os.IsNotExist(err) {
		d.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
