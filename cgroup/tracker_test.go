package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/test/leak"
)

func TestTrackerReadsCapturedTrees(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		rel  string
		want Usage
	}{
		"6.18-hybrid-cgroupfs": {"/kubepods/burstable/pod6f1c4c8e-2d5c-4f0a-9a6e-0b7f3f1d2c11", Usage{600 * mib, 100 * mib, 4096, 12}},
		"6.1-v2-systemd":       {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6f1c4c8e_2d5c_4f0a_9a6e_0b7f3f1d2c11.slice", Usage{600 * mib, 100 * mib, 8192, 12}},
		// This one has no swap accounting and no pids controller.
		"5.10-v1-cgroupfs": {"/kubepods/besteffort/pod0b7f3f1d", Usage{192 * mib, 0, -1, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := NewTracker(testTree(t, name))
			defer tr.Close()
			tr.Sync(map[string]string{"a": c.rel, "b": "/not/there"})
			if got, err := tr.Usage("a"); got != c.want || err != nil {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
			if _, err := tr.Usage("b"); !errors.Is(err, ErrGone) {
				t.Errorf("not there: %v, want ErrGone", err)
			}
			open := len(leak.OpenDescriptors())
			if got, err := NewTracker(tr.layout).Peek(c.rel); got != c.want || err != nil {
				t.Errorf("untracked: got %+v, %v; want %+v", got, err, c.want)
			}
			if _, err := tr.Peek("/not/there"); !errors.Is(err, ErrGone) {
				t.Errorf("untracked and not there: %v, want ErrGone", err)
			}
			if n := len(leak.OpenDescriptors()); n != open {
				t.Errorf("%d descriptors are left open", n-open)
			}
			if _, err := tr.Usage("c"); err == nil || errors.Is(err, ErrGone) {
				t.Errorf("never synced: %v, want that it is not tracked", err)
			}
		})
	}
}

// Without the memory controller (cgroup_disable=memory) the tracker still finds a cgroup and its tasks.
func TestTrackerWithoutMemory(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"v1": {"pids/cgroup.procs": "", "pids/pod/cgroup.procs": "", "pids/pod/pids.current": "12\n", "cpu/cgroup.procs": "", "cpu/pod/cgroup.procs": ""},
		"v2": {"cgroup.controllers": "cpu pids\n", "pod/pids.current": "12\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, files)
			l, err := Detect(Root(dir), Proc(t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			tr := NewTracker(l)
			defer tr.Close()
			tr.Sync(map[string]string{"a": "/pod", "b": "/not/there"})
			want := Usage{Memory: -1, Swap: -1, PIDs: 12}
			if got, err := tr.Usage("a"); got != want || err != nil {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
			if got, err := tr.Peek("/pod"); got != want || err != nil {
				t.Errorf("untracked: got %+v, %v; want %+v", got, err, want)
			}
			if ino, err := l.Inode("/pod"); tr.Inode("a") != ino || err != nil {
				t.Errorf("tracked inode %d, the cgroup's %d, %v", tr.Inode("a"), ino, err)
			}
			if _, err := tr.Usage("b"); !errors.Is(err, ErrGone) {
				t.Errorf("not there: %v, want ErrGone", err)
			}
			// The controller is enabled later.
			write(t, l.Dir("memory", "/pod"), map[string]string{
				"memory.stat": "inactive_file 1024\ntotal_inactive_file 1024\n", l.memoryNames().usage: "4096\n",
			})
			if got, err := tr.Usage("a"); got.Memory != 3072 || got.PIDs != 12 || err != nil {
				t.Errorf("with memory: got %+v, %v", got, err)
			}
			if err := os.RemoveAll(l.dir("/pod")); err != nil {
				t.Fatal(err)
			}
			if got, err := tr.Usage("a"); !errors.Is(err, ErrGone) {
				t.Errorf("removed: %+v, %v; want ErrGone", got, err)
			}
			if got, err := tr.Peek("/pod"); !errors.Is(err, ErrGone) {
				t.Errorf("untracked and removed: %+v, %v; want ErrGone", got, err)
			}
		})
	}
}

// ActiveFile is the page cache of the whole cgroup in active use, and on v2 its dentries and inodes. On v1, it is the hierarchical
// counter, and not the cgroup's own. A kernel that does not report it leaves 0.
func TestTrackerReadsActiveFile(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  Usage
	}{
		"v1": {map[string]string{
			"memory/cgroup.procs": "", "memory/pod/cgroup.procs": "", "memory/pod/memory.usage_in_bytes": "9000\n",
			"memory/pod/memory.stat": "inactive_file 1\nactive_file 2\ntotal_inactive_file 1000\ntotal_active_file 3000\n",
		}, Usage{8000, 3000, -1, -1}},
		"v2": {map[string]string{
			"cgroup.controllers": "memory\n", "pod/memory.current": "9000\n", "pod/memory.stat": "inactive_file 1000\nactive_file 3000\nslab_reclaimable 500\nslab_unreclaimable 70\nslab 570\n",
		}, Usage{8000, 3500, -1, -1}},
		"not reported": {map[string]string{
			"cgroup.controllers": "memory\n", "pod/memory.current": "9000\n", "pod/memory.stat": "inactive_file 1000\n",
		}, Usage{8000, 0, -1, -1}},
	} {
		dir := t.TempDir()
		write(t, dir, c.files)
		l, err := Detect(Root(dir), Proc(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		tr := NewTracker(l)
		tr.Sync(map[string]string{"a": "/pod"})
		if got, err := tr.Usage("a"); got != c.want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
		if got, err := tr.Peek("/pod"); got != c.want || err != nil {
			t.Errorf("%s, untracked: %+v, %v; want %+v", name, got, err, c.want)
		}
		tr.Close()
	}
}

// On v1, a runtime creates a container's cgroup in one hierarchy after the other. One that was synced between them is not
// without tasks for good.
func TestTrackerOfACgroupInTheMaking(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"memory/cgroup.procs": "", "pids/cgroup.procs": "", "memory/c/cgroup.procs": "",
		"memory/c/memory.usage_in_bytes": "9000\n", "memory/c/memory.stat": "total_inactive_file 1000\n",
	})
	l, err := Detect(Root(dir), Proc(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	tr := NewTracker(l)
	defer tr.Close()
	tr.Sync(map[string]string{"a": "/c", "late": "/d"})
	if _, err := tr.Usage("late"); !errors.Is(err, ErrGone) {
		t.Errorf("a cgroup that does not exist: %v", err)
	}
	write(t, dir, map[string]string{"memory/d/memory.usage_in_bytes": "5000\n", "memory/d/memory.stat": "total_inactive_file 1000\n"})
	if got, err := tr.Usage("late"); got != (Usage{4000, 0, -1, -1}) || err != nil || tr.Inode("late") == 0 {
		t.Errorf("without another Sync: %+v, %v", got, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "memory/d")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := tr.Usage("late"); !errors.Is(err, ErrGone) {
			t.Errorf("after it is removed: %v", err)
		}
		write(t, dir, map[string]string{"memory/d/memory.usage_in_bytes": "5000\n", "memory/d/memory.stat": "total_inactive_file 1000\n"})
	}
	for _, want := range []Usage{{8000, 0, -1, -1}, {8000, 0, -1, 12}} {
		if got, err := tr.Usage("a"); got != want || err != nil {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		write(t, dir, map[string]string{"pids/c/pids.current": "12\n"})
	}
	open := len(leak.OpenDescriptors())
	if tr.Sync(nil); len(leak.OpenDescriptors()) != open-3 {
		t.Errorf("its files were not kept open: %d descriptors, then %d", open, len(leak.OpenDescriptors()))
	}
}

func TestTrackerFollowsSync(t *testing.T) {
	l := testTree(t, "6.1-v2-systemd")
	before := len(leak.OpenDescriptors())
	tr := NewTracker(l)
	tr.Sync(map[string]string{"a": "/kubepods.slice", "b": "/kubepods.slice"})
	open := len(leak.OpenDescriptors())
	if open != before+8 {
		t.Errorf("%d descriptors for two cgroups, want 8", open-before)
	}
	for range 3 {
		tr.Sync(map[string]string{"b": "/kubepods.slice"})
	}
	if _, err := tr.Usage("a"); err == nil {
		t.Error("what was synced away is read")
	}
	if _, err := tr.Usage("b"); err != nil {
		t.Error(err)
	}
	if n := len(leak.OpenDescriptors()); n != before+4 {
		t.Errorf("%d descriptors for one cgroup, want 4", n-before)
	}
	tr.Sync(map[string]string{"b": "/not/there"}) // another path for the same ID
	if _, err := tr.Usage("b"); !errors.Is(err, ErrGone) {
		t.Errorf("moved to a path that is not there: %v, want ErrGone", err)
	}
	tr.Close()
	tr.Close()
	if n := len(leak.OpenDescriptors()); n != before {
		t.Errorf("%d descriptors are left open", n-before)
	}
}

func TestTrackerOfARemovedCgroup(t *testing.T) {
	l := realV1(t)
	rel := ownCgroup(t, l, "pids")
	tr := NewTracker(l)
	defer tr.Close()
	dirs := map[string]string{"pod": rel}
	tr.Sync(dirs)
	if u, err := tr.Usage("pod"); err != nil || u.Memory < 0 || u.PIDs != 0 {
		t.Fatal(u, err)
	}
	first := tr.Inode("pod")
	if now, err := l.Inode(rel); now != first || err != nil {
		t.Fatalf("tracked inode %d, the cgroup's %d, %v", first, now, err)
	}
	remake := func() {
		if err := os.Remove(l.dir(rel)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(l.dir(rel), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	remake()
	if u, err := tr.Usage("pod"); !errors.Is(err, ErrGone) {
		t.Errorf("another cgroup under the same path: %+v, %v; want ErrGone", u, err)
	}
	if tr.Inode("pod") != 0 {
		t.Error("a cgroup that is gone has an inode")
	}
	tr.Sync(dirs)
	if _, err := tr.Usage("pod"); err != nil {
		t.Errorf("synced again: %v", err)
	}
	second := tr.Inode("pod")
	if second == first || second == 0 {
		t.Errorf("inode %d, and %d before", second, first)
	}
	// Without a reading in between, Sync itself must notice.
	remake()
	tr.Sync(dirs)
	if tr.Inode("pod") == second {
		t.Error("Sync kept the descriptors of a removed cgroup")
	}
	if _, err := tr.Usage("pod"); err != nil {
		t.Errorf("synced again: %v", err)
	}
	if err := os.Remove(l.dir(rel)); err != nil {
		t.Fatal(err)
	}
	tr.Sync(dirs)
	if _, err := tr.Usage("pod"); !errors.Is(err, ErrGone) {
		t.Errorf("removed: %v, want ErrGone", err)
	}
}

func TestTrackerShortOfDescriptors(t *testing.T) {
	l := realV1(t)
	if !isolated(t) {
		return
	}
	dirs := map[string]string{}
	rel := ownCgroup(t, l)
	for i := range 8 {
		child := fmt.Sprintf("%s/%d", rel, i)
		makeCgroup(t, l.dir(child))
		dirs[child] = child
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	const keep = 3
	short := unix.Rlimit{Cur: 2 * filesEach * keep, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &short); err != nil {
		t.Fatal(err)
	}
	tr := NewTracker(l)
	tr.Sync(dirs)
	kept := 0
	for _, c := range tr.tracked {
		if c.open {
			kept++
		}
	}
	errs := map[string]error{}
	for id := range dirs {
		if _, err := tr.Usage(id); err != nil {
			errs[id] = err
		}
	}
	gone := ""
	for id, c := range tr.tracked {
		if !c.open {
			gone = id
		}
	}
	if err := unix.Rmdir(l.dir(gone)); err != nil {
		t.Fatal(err)
	}
	_, goneErr := tr.Usage(gone)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if kept != keep {
		t.Errorf("%d of %d cgroups kept open, want %d", kept, len(dirs), keep)
	}
	for id, err := range errs {
		t.Errorf("%s: %v", id, err)
	}
	if !errors.Is(goneErr, ErrGone) {
		t.Errorf("removed, and not kept open: %v, want ErrGone", goneErr)
	}
	delete(dirs, gone)
	tr.Sync(dirs)
	for id, c := range tr.tracked {
		if !c.open {
			t.Errorf("%s is not kept open though there are descriptors again", id)
		}
	}
	tr.Close()
}

func TestTrackerIsSafeForConcurrentUse(t *testing.T) {
	l := testTree(t, "6.1-v2-systemd")
	tr := NewTracker(l)
	defer tr.Close()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range 200 {
				dirs := map[string]string{"b": "/kubepods.slice"}
				if i%2 == 0 {
					dirs["a"] = "/kubepods.slice"
				}
				tr.Sync(dirs)
			}
		})
		wg.Go(func() {
			for range 200 {
				if u, err := tr.Usage("b"); err == nil && u.PIDs != 12 {
					t.Errorf("got %+v", u)
				}
				_, _ = tr.Usage("a")
				tr.Inode("a")
			}
		})
	}
	wg.Wait()
}

// podsOfItsOwn creates cgroups like those of n pods with one container each.
func podsOfItsOwn(t testing.TB, l Layout, n int) map[string]string {
	t.Helper()
	rel := ownCgroup(t, l, "pids")
	dirs := map[string]string{}
	for i := range n {
		pod := fmt.Sprintf("%s/pod%d", rel, i)
		for _, c := range []string{"memory", "pids"} {
			makeCgroup(t, l.Dir(c, pod))
			makeCgroup(t, filepath.Join(l.Dir(c, pod), "container"))
		}
		dirs[pod] = pod
	}
	return dirs
}

func TestTrackerAllocatesNothing(t *testing.T) {
	l := realV1(t)
	dirs := podsOfItsOwn(t, l, 2)
	tr := NewTracker(l)
	defer tr.Close()
	tr.Sync(dirs)
	var err error
	got := testing.AllocsPerRun(50, func() {
		for id := range dirs {
			_, e := tr.Usage(id)
			err = errors.Join(err, e)
		}
	})
	if got != 0 || err != nil {
		t.Errorf("%v allocations, %v", got, err)
	}
}

// The budget is 1 ms for 110 pods, the kubelet's default maximum.
func BenchmarkTracker110Pods(b *testing.B) {
	l := realV1(b)
	dirs := podsOfItsOwn(b, l, 110)
	tr := NewTracker(l)
	defer tr.Close()
	tr.Sync(dirs)
	b.ReportAllocs()
	for b.Loop() {
		for id := range dirs {
			if _, err := tr.Usage(id); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkTrackerSync110Pods(b *testing.B) {
	l := realV1(b)
	dirs := podsOfItsOwn(b, l, 110)
	tr := NewTracker(l)
	defer tr.Close()
	tr.Sync(dirs)
	b.ReportAllocs()
	for b.Loop() {
		tr.Sync(dirs)
	}
}
