package disk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cgroup/dirtree"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/need"
)

// only returns the paths of a node on which nothing but the kubelet's root directory is known.
func only(root string) func() Paths { return func() Paths { return Paths{Node: root} } }

// writeKiB writes a file of kib KiB and creates its parent directories.
func writeKiB(t *testing.T, path string, kib int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, kib<<10), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Only a pod's local volumes count: stopping the pod does not free a persistent volume, whatever device it
// is on.
func TestMeterCountsLocalVolumes(t *testing.T) {
	m := &Meter{
		source: func() (LayerSource, error) { return nil, cri.ErrNoRuntime },
		paths:  only(t.TempDir()), logs: t.TempDir(), now: func() time.Duration { return time.Hour },
	}
	volumes := filepath.Join(m.paths().Node, "pods/uid/volumes")
	writeKiB(t, filepath.Join(volumes, "kubernetes.io~empty-dir/scratch/file"), 64)
	writeKiB(t, filepath.Join(volumes, "kubernetes.io~configmap/settings/file"), 32)
	writeKiB(t, filepath.Join(volumes, "kubernetes.io~local-volume/pv/file"), 512)
	writeKiB(t, filepath.Join(volumes, "kubernetes.io~csi/pvc/mount/file"), 512)
	writeKiB(t, filepath.Join(m.paths().Node, "pods/uid/etc-hosts"), 16)
	writeKiB(t, filepath.Join(m.paths().Node, "pods/uid/containers/main/1a2b3c4d"), 128)
	m.Measure(t.Context(), []inventory.Pod{{Candidate: policy.Candidate{ID: "p", UID: "uid"}}})
	u, _ := m.Usage("p")
	if bytes := u.Bytes.Volumes; u.Inodes.Volumes != policy.Exactly(10) || bytes.Quality != policy.QualityExact || bytes.Value < 240<<10 || bytes.Value > 400<<10 {
		t.Errorf("%+v bytes in %+v inodes, want 240 KiB and what 6 directories take in 10", bytes, u.Inodes.Volumes)
	}
}

// Logs on another device than nodefs are measured and marked as such.
func TestMeterTellsLogsApart(t *testing.T) {
	for logs, want := range map[string]bool{t.TempDir(): false, "/proc": true} {
		m := &Meter{
			source: func() (LayerSource, error) { return nil, cri.ErrNoRuntime },
			paths:  only(filepath.Join(t.TempDir(), "not made yet")), logs: logs, now: func() time.Duration { return time.Hour },
		}
		m.Measure(t.Context(), []inventory.Pod{{Candidate: policy.Candidate{ID: "p", UID: "uid"}}})
		if u, _ := m.Usage("p"); u.Bytes.LogsApart != want || u.Inodes.LogsApart != want {
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
		if got := Apart(c.a, c.b); got != c.want || Apart(c.b, c.a) != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A pod that cannot be measured keeps its last measurement while it is valid. A pod that is gone is dropped.
func TestMeterKeepsTheLast(t *testing.T) {
	f := &fakeLayers{every: time.Nanosecond, started: time.Unix(0, 0), wrote: map[string]int64{"c": 1}, asked: map[string]int{}}
	var broken error
	now := time.Hour
	m := &Meter{
		source: func() (LayerSource, error) { return f, broken },
		paths:  only(t.TempDir()), logs: t.TempDir(), now: func() time.Duration { return now },
	}
	pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "p"}, Containers: []inventory.Container{{ID: "c"}, {ID: "gone"}}}, {Candidate: policy.Candidate{ID: "q"}}}
	m.Measure(t.Context(), pods)
	first, ok := m.Usage("p")
	if !ok || !first.Bytes.Known() || first.Bytes.Rootfs.Value == 0 {
		t.Fatalf("%+v, %t", first, ok)
	}
	broken, now = fmt.Errorf("hangs: %w", cri.ErrNoRuntime), now+usageFresh
	m.Measure(t.Context(), pods[:1])
	if u, ok := m.Usage("p"); !ok || u.Bytes.Rootfs != policy.AtLeast(first.Bytes.Rootfs.Value) || u.At != first.At {
		t.Errorf("after a failure: %+v, %t", u, ok)
	}
	now++
	if _, ok := m.Usage("p"); ok {
		t.Error("what is too old counts")
	}
	m.Measure(t.Context(), pods[:1])
	if _, ok := m.last["q"]; ok {
		t.Error("a pod that is gone is remembered")
	}
}

// A container whose usage was never requested may use anything; one that was requested without an answer
// does not count.
func TestMeterKnowsStrangers(t *testing.T) {
	now := time.Hour
	m := &Meter{
		source: func() (LayerSource, error) { return nil, cri.ErrNoRuntime },
		paths:  only(t.TempDir()), logs: t.TempDir(), now: func() time.Duration { return now },
	}
	pods := []inventory.Pod{
		{Candidate: policy.Candidate{ID: "p"}, Containers: []inventory.Container{{ID: "c"}}},
		{Candidate: policy.Candidate{ID: "empty"}},
		{Candidate: policy.Candidate{ID: "new"}, Containers: []inventory.Container{{ID: "d"}}},
	}
	stranger := func() bool { _, found := m.Unmeasured(pods); return found }
	m.Measure(t.Context(), pods[:2])
	if largest, found := m.Unmeasured(pods); !found || largest != math.MaxInt64 {
		t.Errorf("one was not measured: %d, %t", largest, found)
	}
	m.Measure(t.Context(), pods[2:]) // as a concurrent measurement of other pods does
	if stranger() {
		t.Error("all were asked for")
	}
	if pods[0].Containers = append(pods[0].Containers, inventory.Container{ID: "e"}); !stranger() {
		t.Error("a container that was started since was not asked for")
	}
	m.Measure(t.Context(), pods[:1])
	if stranger() {
		t.Error("all were asked for again")
	}
	if now += usageFresh + 1; !stranger() {
		t.Error("what was asked for long ago counts")
	}
}

// noInodes reports the bytes of a layer but, like Docker, no inodes.
type noInodes struct{ LayerSource }

func (noInodes) WritableLayer(context.Context, string) (cri.FsUsage, error) {
	return cri.FsUsage{UsedBytes: 7, Known: true}, nil
}

// Inodes that the runtime does not report are unknown, even if it reports bytes.
func TestMeterInodesAreUnknownOnDocker(t *testing.T) {
	m := newTestMeter(t, noInodes{})
	m.Measure(t.Context(), []inventory.Pod{{Candidate: policy.Candidate{ID: "p", UID: "uid"}, Containers: []inventory.Container{{ID: "c"}}}})
	u, _ := m.Usage("p")
	if u.Bytes.Rootfs != policy.Exactly(7) || u.Inodes.Rootfs != (policy.Measured{}) {
		t.Errorf("%+v and %+v, want 7 bytes and unknown inodes", u.Bytes.Rootfs, u.Inodes.Rootfs)
	}
	c := policy.Candidate{ID: "p", Disk: u.Bytes, Inodes: u.Inodes}
	for s, want := range map[policy.Signal]policy.Quality{
		policy.NodeFSAvailable: policy.QualityExact, policy.ImageFSAvailable: policy.QualityExact,
		policy.NodeFSInodesFree: policy.QualityUnknown, policy.ImageFSInodesFree: policy.QualityUnknown,
	} {
		if r := policy.Rank([]policy.Candidate{c}, s, policy.SingleFS, nil)[0]; r.Quality != want {
			t.Errorf("%s: quality %d of %d, want %d", s, r.Quality, r.Usage, want)
		}
	}
}

func newTestMeter(t *testing.T, source LayerSource) *Meter {
	t.Helper()
	return &Meter{
		source: func() (LayerSource, error) { return source, nil },
		paths:  only(t.TempDir()), logs: t.TempDir(), now: func() time.Duration { return time.Hour },
	}
}

// Docker's own log counts for the container that links to it, and for no other container.
func TestMeterFollowsDockersLogs(t *testing.T) {
	need.Root(t) // only root's links are followed
	m := newTestMeter(t, noInodes{})
	data := t.TempDir()
	podDir := filepath.Join(m.logs, "ns_p_uid")
	var containers []inventory.Container
	for _, id := range []string{"own", "plain", "another's"} {
		target := filepath.Join(data, id, id+"-json.log")
		writeKiB(t, target, 512)
		link := filepath.Join(podDir, id, "0.log")
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		c := inventory.Container{ID: id, LogPath: link}
		switch id {
		case "plain":
			writeKiB(t, link, 64)
		case "another's":
			c.ID = "other"
			fallthrough
		default:
			if err := os.Symlink(target, link); err != nil {
				t.Fatal(err)
			}
		}
		containers = append(containers, c)
	}
	m.Measure(t.Context(), []inventory.Pod{{Candidate: policy.Candidate{ID: "p", Namespace: "ns", Name: "p", UID: "uid"}, Containers: containers}})
	u, _ := m.Usage("p")
	logs, err := dirtree.Measure(t.Context(), podDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := logs.Bytes + 512<<10; u.Bytes.Logs != policy.Exactly(want) || u.Inodes.Logs != policy.Exactly(logs.Inodes+1) {
		t.Errorf("%+v in %+v inodes, want %d in %d", u.Bytes.Logs, u.Inodes.Logs, want, logs.Inodes+1)
	}
	if _, got := linkedLog(filepath.Join(m.logs, "ns_q_uid"), &containers[0]); got != exactly(0, 0) {
		t.Errorf("another pod's log counts: %+v", got)
	}
}

// Docker's own log on another device than the pods' logs is on the device of the layers, and counts there.
func TestMeterCountsDockersLogsWithTheLayers(t *testing.T) {
	need.Root(t)
	m := newTestMeter(t, noInodes{})
	data := t.TempDir()
	need.Mount(t, "criguard-test", data, "tmpfs", 0, "size=1m")
	target := filepath.Join(data, "c", "c-json.log")
	writeKiB(t, target, 512)
	podDir := filepath.Join(m.logs, "ns_p_uid")
	link := filepath.Join(podDir, "c", "0.log")
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	m.Measure(t.Context(), []inventory.Pod{{
		Candidate:  policy.Candidate{ID: "p", Namespace: "ns", Name: "p", UID: "uid"},
		Containers: []inventory.Container{{ID: "c", LogPath: link}},
	}})
	u, _ := m.Usage("p")
	logs, err := dirtree.Measure(t.Context(), podDir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if u.Bytes.Rootfs != policy.Exactly(7+512<<10) || u.Bytes.Logs != policy.Exactly(logs.Bytes) || u.Inodes.Logs != policy.Exactly(logs.Inodes) {
		t.Errorf("layers %+v, logs %+v in %+v inodes; want the target in the layers alone", u.Bytes.Rootfs, u.Bytes.Logs, u.Inodes.Logs)
	}
}

// A tree that was read to its end is known exactly; one that was not gives a lower bound, and so does one
// that cannot be opened. A part may have more trees, so until it is complete, a lower bound is recorded.
func TestMeterQualityOfATree(t *testing.T) {
	m := newTestMeter(t, noInodes{})
	dir := t.TempDir()
	writeKiB(t, filepath.Join(dir, "a/file"), 64)
	ended, end := context.WithCancel(t.Context())
	end()
	tooLong := filepath.Join(dir, strings.Repeat("d", 256))
	for _, c := range []struct {
		name string
		ctx  context.Context
		dir  string
		want policy.Quality
	}{
		{"read", t.Context(), dir, policy.QualityExact},
		{"absent", t.Context(), filepath.Join(dir, "none"), policy.QualityExact},
		{"cut short", ended, dir, policy.QualityAtLeast},
		{"cannot be opened", t.Context(), tooLong, policy.QualityAtLeast}, // the rest of the pod is known
	} {
		j := newPodMeasure(&inventory.Pod{}, func() time.Duration { return 0 })
		sum := m.tree(c.ctx, j, volumesOf, exactly(1, 1), c.dir)
		if sum.bytes.Quality != c.want || sum.inodes.Quality != c.want || j.bytes.Volumes != policy.AtLeast(sum.bytes.Value) || j.inodes.Volumes != policy.AtLeast(sum.inodes.Value) {
			t.Errorf("%s: %+v, recorded %+v, want quality %d", c.name, sum, j.bytes.Volumes, c.want)
		}
		if read := c.want == policy.QualityExact && c.dir == dir; read != (sum.bytes.Value > 64<<10) {
			t.Errorf("%s: %+v", c.name, sum)
		}
	}
}

// A directory tree that is not fully read gives a lower bound, and the next measurement continues where the
// last caller stopped waiting.
func TestMeterGoesOnWithSlowPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hangingLayers{release: make(chan struct{}), asked: make(chan string, 10)}
		m := newTestMeter(t, h)
		start := time.Now()
		m.now = func() time.Duration { return time.Since(start) }
		pods := []inventory.Pod{{Candidate: policy.Candidate{ID: "p", UID: "uid"}, Containers: []inventory.Container{{ID: "quick"}, {ID: "hangs"}}}}
		m.Measure(t.Context(), pods)
		if took := time.Since(start); took != measureTimeout {
			t.Errorf("waited %s, want %s", took, measureTimeout)
		}
		if u, _ := m.Usage("p"); u.Bytes.Known() {
			t.Errorf("known before it was measured: %+v", u.Bytes)
		}
		j := m.underWay(measureKey{"p", false}, &call{from: anyTime})
		j.set(rootfsOf, amounts{policy.AtLeast(9), policy.AtLeast(3)}) // as a walk does
		next := append(slices.Clone(pods), inventory.Pod{Candidate: policy.Candidate{ID: "q"}})
		next[0].Containers = append(next[0].Containers, inventory.Container{ID: "new"})
		m.Measure(t.Context(), next)
		if took := time.Since(start); took != 2*measureTimeout || len(h.asked) != 2 {
			t.Errorf("waited %s in all and asked %d times: what goes on is not begun again", took, len(h.asked))
		}
		if u, _ := m.Usage("p"); u.Bytes.Rootfs != policy.AtLeast(9) || u.Inodes.Rootfs != policy.AtLeast(3) {
			t.Errorf("so far %+v and %+v", u.Bytes, u.Inodes)
		}
		if u, ok := m.Usage("q"); !ok || !u.Bytes.Known() {
			t.Errorf("the other pod: %+v, %v", u.Bytes, ok)
		}
		go func() {
			time.Sleep(time.Second)
			close(h.release)
		}()
		j.set(rootfsOf, amounts{policy.AtLeast(10), policy.AtLeast(4)})
		m.Measure(t.Context(), next)
		u, _ := m.Usage("p")
		if took := time.Since(start); took != 2*measureTimeout+time.Second || u.Bytes.Volumes != policy.Exactly(0) {
			t.Errorf("after %s: %+v", took, u.Bytes)
		}
		if u.Bytes.Rootfs != policy.AtLeast(14) {
			t.Errorf("a container that came meanwhile was not measured: %+v", u.Bytes.Rootfs)
		}
	})
}

// Slow pods, however many, do not block the measurement of others.
func TestMeterSlowPodsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hangingLayers{release: make(chan struct{}), asked: make(chan string, 20)}
		m := newTestMeter(t, h)
		var pods []inventory.Pod
		for i := range 2 * podsAtOnce {
			pods = append(pods, inventory.Pod{Candidate: policy.Candidate{ID: fmt.Sprint("slow", i)}, Containers: []inventory.Container{{ID: "hangs"}}})
		}
		pods = append(pods, inventory.Pod{Candidate: policy.Candidate{ID: "quick"}, Containers: []inventory.Container{{ID: "quick"}}})
		m.Measure(t.Context(), pods)
		if u, ok := m.Usage("quick"); !ok || u.Bytes.Rootfs != policy.Exactly(7) {
			t.Errorf("%+v, %v", u.Bytes, ok)
		}
		close(h.release)
		synctest.Wait()
	})
}

// Logs that share a device with the images or the writable layers count towards its signals, as where /var is one filesystem and
// /var/lib/kubelet another. Otherwise, no pod would be stopped for what its logs fill.
func TestMeterFindsTheDeviceOfTheLogs(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name   string
		paths  Paths
		layout policy.Layout
		want   map[policy.Signal]bool
	}{
		{"with both", Paths{Image: dir}, policy.DedicatedImageFS, map[policy.Signal]bool{policy.ImageFSAvailable: true, policy.ContainerFSAvailable: true}},
		{"with the layers", Paths{Image: "/proc", Container: dir}, policy.DedicatedContainerFS, map[policy.Signal]bool{policy.ContainerFSAvailable: true}},
		{"with the images", Paths{Image: dir, Container: "/proc"}, policy.SplitFS, map[policy.Signal]bool{policy.ImageFSAvailable: true}},
		{"on a device of their own", Paths{Image: "/proc"}, policy.SingleFS, nil},
		{"while the runtime has reported none", Paths{}, policy.SingleFS, nil},
	} {
		m := newTestMeter(t, noInodes{})
		c.paths.Node = "/proc"
		m.paths = func() Paths { return c.paths }
		writeKiB(t, filepath.Join(m.logs, "ns_p_uid", "main", "0.log"), 2048)
		m.Measure(t.Context(), []inventory.Pod{{Candidate: policy.Candidate{ID: "p", UID: "uid", Namespace: "ns", Name: "p"}}})
		u, _ := m.Usage("p")
		for _, s := range []policy.Signal{policy.NodeFSAvailable, policy.ImageFSAvailable, policy.ContainerFSAvailable} {
			r := policy.Rank([]policy.Candidate{{ID: "p", Disk: u.Bytes, Inodes: u.Inodes}}, s, c.layout, nil)[0]
			if counts := r.Yield >= 2<<20; counts != c.want[s] {
				t.Errorf("logs %s count towards %s: %t (%+v)", c.name, s, counts, u.Bytes)
			}
		}
	}
}

// While nodefs cannot be read, logs on the device of the images or the writable layers are found there. Otherwise, a pod that fills it
// with its log would be no candidate.
func TestMeterFindsTheLogsWithoutNodefs(t *testing.T) {
	for _, c := range []struct {
		name string
		logs uint64 // their device; 0 = it cannot be read
		want policy.LogsPlace
	}{
		{"with the layers", 2, policy.LogsPlace{LogsApart: true, LogsWith: policy.ContainerFSAvailable}},
		{"with the images", 3, policy.LogsPlace{LogsApart: true, LogsWith: policy.ImageFSAvailable}},
		{"elsewhere", 4, policy.LogsPlace{}},
		{"not readable", 0, policy.LogsPlace{}},
	} {
		m := newTestMeter(t, noInodes{})
		root := m.paths().Node
		m.paths = func() Paths { return Paths{Node: root, Image: "/images", Container: "/layers"} }
		devices := map[string]uint64{m.logs: c.logs, "/layers": 2, "/images": 3}
		got := m.LogsPlace(func(dir string) (cgroup.Space, error) {
			if devices[dir] == 0 {
				return cgroup.Space{}, ErrHangs
			}
			return cgroup.Space{Device: devices[dir], Total: 1, Inodes: 1}, nil
		})
		if got != c.want {
			t.Errorf("logs %s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
