package guard

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// writeKiB writes a file of that size, with the directories above it.
func writeKiB(t *testing.T, path string, kib int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, kib<<10), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A tree counts what it takes, and neither what a link names nor what is elsewhere.
func TestWalk(t *testing.T) {
	outside := t.TempDir()
	write := func(path string, kib int) { t.Helper(); writeKiB(t, path, kib) }
	write(filepath.Join(outside, "large"), 512)
	root := filepath.Join(t.TempDir(), "volumes")
	write(filepath.Join(root, "a"), 64)
	write(filepath.Join(root, "b/c"), 32)
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b/also a", "b/a again"} {
		if err := os.Link(filepath.Join(root, "a"), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	var want int64
	for _, path := range []string{"", "a", "b", "b/c", "link"} {
		var st syscall.Stat_t
		if err := syscall.Lstat(filepath.Join(root, path), &st); err != nil {
			t.Fatal(err)
		}
		want += st.Blocks * 512
	}
	bytes, inodes := walk(t.Context(), root)
	if bytes != want || inodes != 5 || bytes < 96<<10 || bytes > 256<<10 {
		t.Errorf("%d bytes in %d inodes, want %d in 5", bytes, inodes, want)
	}
	if bytes, inodes := walk(t.Context(), filepath.Join(root, "not there")); bytes != 0 || inodes != 0 {
		t.Errorf("what is not there takes %d bytes in %d inodes", bytes, inodes)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, inodes := walk(ended, root); inodes != 0 {
		t.Errorf("%d inodes after the end", inodes)
	}
}

// Of a pod's volumes those count that are its own: what is kept on a persistent one comes
// back with no stop, on whatever device that is.
func TestMeterCountsLocalVolumes(t *testing.T) {
	m := &diskMeter{
		source: func() (layerSource, error) { return nil, ErrNoRuntime },
		root:   t.TempDir(), logs: t.TempDir(), now: func() time.Duration { return time.Hour },
	}
	volumes := filepath.Join(m.root, "pods/uid/volumes")
	writeKiB(t, filepath.Join(volumes, "kubernetes.io~empty-dir/scratch/file"), 64)
	writeKiB(t, filepath.Join(volumes, "kubernetes.io~configmap/settings/file"), 32)
	writeKiB(t, filepath.Join(volumes, "kubernetes.io~local-volume/pv/file"), 512)
	writeKiB(t, filepath.Join(volumes, "kubernetes.io~csi/pvc/mount/file"), 512)
	m.measure(t.Context(), []Pod{{Candidate: policy.Candidate{ID: "p", UID: "uid"}}})
	u, _ := m.usage("p")
	if u.inodes.Volumes != 6 || u.bytes.Volumes < 96<<10 || u.bytes.Volumes > 256<<10 {
		t.Errorf("%d bytes in %d inodes, want 96 KiB and what 4 directories take in 6", u.bytes.Volumes, u.inodes.Volumes)
	}
}

// Logs on another device than nodefs are measured and told apart.
func TestMeterTellsLogsApart(t *testing.T) {
	for logs, want := range map[string]bool{t.TempDir(): false, "/proc": true} {
		m := &diskMeter{
			source: func() (layerSource, error) { return nil, ErrNoRuntime },
			root:   filepath.Join(t.TempDir(), "not made yet"), logs: logs, now: func() time.Duration { return time.Hour },
		}
		m.measure(t.Context(), []Pod{{Candidate: policy.Candidate{ID: "p", UID: "uid"}}})
		if u, _ := m.usage("p"); u.bytes.LogsApart != want || u.inodes.LogsApart != want {
			t.Errorf("logs in %s: %+v", logs, u)
		}
	}
}

func TestApart(t *testing.T) {
	ext4, btrfs := cgroup.Space{Device: 1, Total: 100, Inodes: 10}, cgroup.Space{Device: 1, Total: 100}
	for _, c := range []struct {
		name string
		a, b cgroup.Space
		want bool
	}{
		{"the same", ext4, ext4, false},
		{"of one size", ext4, cgroup.Space{Device: 2, Total: 100, Inodes: 10}, true},
		{"a subvolume", btrfs, cgroup.Space{Device: 2, Total: 100}, false},
		{"another of its kind", btrfs, cgroup.Space{Device: 2, Total: 101}, true},
	} {
		if got := apart(c.a, c.b); got != c.want || apart(c.b, c.a) != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// One that cannot be measured keeps its last measurement for as long as that counts; a
// pod that is gone is forgotten.
func TestMeterKeepsTheLast(t *testing.T) {
	f := &fakeLayers{every: time.Nanosecond, started: time.Unix(0, 0), wrote: map[string]int64{"c": 1}, asked: map[string]int{}}
	var broken error
	now := time.Hour
	m := &diskMeter{
		source: func() (layerSource, error) { return f, broken },
		root:   t.TempDir(), logs: t.TempDir(), now: func() time.Duration { return now },
	}
	pods := []Pod{{Candidate: policy.Candidate{ID: "p"}, Containers: []PodContainer{{ID: "c"}, {ID: "gone"}}}, {Candidate: policy.Candidate{ID: "q"}}}
	m.measure(t.Context(), pods)
	first, ok := m.usage("p")
	if !ok || !first.bytes.Known || first.bytes.Rootfs == 0 {
		t.Fatalf("%+v, %t", first, ok)
	}
	broken, now = fmt.Errorf("hangs: %w", ErrNoRuntime), now+diskUseFresh
	m.measure(t.Context(), pods[:1])
	if u, ok := m.usage("p"); !ok || u.bytes != first.bytes || u.at != first.at {
		t.Errorf("after a failure: %+v, %t", u, ok)
	}
	now++
	if _, ok := m.usage("p"); ok {
		t.Error("what is too old counts")
	}
	m.measure(t.Context(), pods[:1])
	if _, ok := m.last["q"]; ok {
		t.Error("a pod that is gone is remembered")
	}
}

// A container that nobody asked for may use anything; one that was asked for in vain may
// not.
func TestMeterKnowsStrangers(t *testing.T) {
	now := time.Hour
	m := &diskMeter{
		source: func() (layerSource, error) { return nil, ErrNoRuntime },
		root:   t.TempDir(), logs: t.TempDir(), now: func() time.Duration { return now },
	}
	pods := []Pod{
		{Candidate: policy.Candidate{ID: "p"}, Containers: []PodContainer{{ID: "c"}}},
		{Candidate: policy.Candidate{ID: "empty"}},
		{Candidate: policy.Candidate{ID: "new"}, Containers: []PodContainer{{ID: "d"}}},
	}
	stranger := func() bool { _, found := m.stranger(pods); return found }
	m.measure(t.Context(), pods[:2])
	if largest, found := m.stranger(pods); !found || largest != math.MaxInt64 {
		t.Errorf("one was not measured: %d, %t", largest, found)
	}
	m.measure(t.Context(), pods[2:]) // as another measurement that began with others
	if stranger() {
		t.Error("all were asked for")
	}
	if pods[0].Containers = append(pods[0].Containers, PodContainer{ID: "e"}); !stranger() {
		t.Error("a container that was started since was not asked for")
	}
	m.measure(t.Context(), pods[:1])
	if stranger() {
		t.Error("all were asked for again")
	}
	if now += diskUseFresh + 1; !stranger() {
		t.Error("what was asked for long ago counts")
	}
}
