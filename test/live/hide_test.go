package live_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// A pod that hides a file in its volume from a careless directory walk is stopped for it, no later
// than a pod that hides nothing. During a pause, each writes all that it wants to.
func TestHidesDiskUsage(t *testing.T) {
	const size, names = 900 * mib, 600_000
	n := onLab(t, harness.StartLab(t, lab.Options{NodeFSBytes: size, NodeFSInodes: names, Workload: built.workload}))
	volume := func(args ...string) []lab.ContainerSpec {
		return []lab.ContainerSpec{{Name: "main", Args: args, EmptyDirs: map[string]string{"data": "/data"}}}
	}
	innocent := n.pod(lab.PodSpec{Name: "innocent", Containers: volume("fill", "-mib", "24")})
	mounted := n.pod(lab.PodSpec{Name: "mounted", Containers: volume("pause")})
	foreign := n.mountForeign(mounted, 300)
	free := n.nodeRoom()
	n.configure(config{
		hard: thresholds{policy.NodeFSAvailable: bytes(free - 150*mib)},
		more: "[budget]\nhard = {burst = 20, every = \"1s\"}\n[images]\nprune = \"never\"\n",
	})
	s := n.startWith(2)
	var plain time.Duration
	for i, c := range []struct {
		name string
		args []string
	}{
		{"plain", []string{"fill", "-mib", "220"}},
		{"deep", []string{"hide", "-how", "deep", "-mib", "220"}},
		{"links", []string{"hide", "-how", "links", "-mib", "220"}},
		{"entries", []string{"hide", "-how", "entries", "-mib", "220"}},
		{"swap", []string{"hide", "-how", "swap", "-mib", "220", "-target", foreign}},
	} {
		order := func(args ...string) {
			if a := n.criguard(n.args(args...)...); a.Code != 0 {
				n.Fatalf("%v: exit code %d: %s", args, a.Code, a.Err)
			}
		}
		order("pause", "--for", "10m")
		p := n.pod(lab.PodSpec{Name: c.name, Containers: volume(c.args...)})
		n.until(c.name+" to fill the disk", func() bool { return n.nodeRoom() < free-220*mib })
		order("resume")
		began := time.Now()
		n.within(2*patience, c.name+" to be stopped", func() bool { return len(s.stops()) > i })
		took := time.Since(began)
		if stop := s.stops()[i].Stop; stop.Pod != "default/"+c.name || stop.Expected < 220*mib || stop.Expected > 300*mib {
			n.Fatalf("stopped %s for %d MiB, want default/%s for 220 and a little: %s", stop.Pod, stop.Expected/mib, c.name, stop.Reason)
		}
		t.Logf("%s: stopped after %s", c.name, took.Round(time.Millisecond))
		if plain == 0 {
			plain = took
		}
		if limit := plain + 12*time.Second; took > limit { // as long as a walk may take on a busy machine
			n.Errorf("%s was stopped after %s, want within %s", c.name, took, limit)
		}
		n.ended(p)
		if err := n.lab.RemovePod(context.Background(), p); err != nil {
			n.Fatal(err)
		}
		n.until("the threshold to be met no more", func() bool { return len(s.met()) == 0 })
	}
	n.alive(innocent, mounted)
	if log := s.Logged(); strings.Contains(log, "level=ERROR") {
		n.Error("criguard logged errors")
	}
}

// nodeRoom returns the available space of the node filesystem, in bytes.
func (n *node) nodeRoom() int64 {
	n.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(n.lab.KubeletRoot(), &fs); err != nil {
		n.Fatal(err)
	}
	return int64(fs.Bavail) * int64(fs.Bsize) //nolint:gosec,unconvert // a small filesystem; 32 bits on arm
}

// mountForeign binds a directory of the same filesystem into a pod's volume and into its logs, as
// storage that outlives the pod: stopping the pod frees none of it. It returns the directory, which
// holds a file of size MiB.
func (n *node) mountForeign(p *lab.RunningPod, size int64) string {
	n.Helper()
	mkdir := func(dir string) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.Fatal(err)
		}
	}
	source := filepath.Join(n.lab.KubeletRoot(), "persistent")
	mkdir(source)
	if err := os.WriteFile(filepath.Join(source, "large"), make([]byte, size*mib), 0o600); err != nil {
		n.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(n.lab.KubeletRoot(), "pods", p.UID, "volumes/kubernetes.io~empty-dir/data"), p.LogDirectory} {
		target := filepath.Join(dir, "mount")
		mkdir(target)
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			n.Fatal(err)
		}
		n.Cleanup(func() {
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				n.Error(err)
			}
		})
	}
	return source
}
