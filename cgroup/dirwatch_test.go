package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/test/need"
)

// changes returns and clears the pending changes.
func changes(t *testing.T, w *Waker, complete bool) map[string]bool {
	t.Helper()
	got := map[string]bool{}
	if ok := w.Changes(func(rel string, removed bool) { got[rel] = removed }); ok != complete {
		t.Errorf("complete: %t, want %t", ok, complete)
	}
	return got
}

func expect(t *testing.T, w *Waker, what string, want map[string]bool) {
	t.Helper()
	if got := changes(t, w, true); !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// kernelWatches counts this process's watches in the kernel (proc_pid_fdinfo(5)).
func (w *Waker) kernelWatches(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", w.pods.fd))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "inotify wd:")
}

// Changes reports a new cgroup, or a possible new process in a watched one, as soon as the call that
// caused it returns, without waiting for the epoll loop. The loop still wakes.
func TestChangesAreKnownAtOnce(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		w := newWaker(t, l)
		rel := ownCgroup(t, l)
		if err := w.AddDir(rel); err != nil {
			t.Fatal(err)
		}
		expect(t, w, "at first", map[string]bool{})
		pod := rel + "/pod"
		makeCgroup(t, l.dir(pod))
		expect(t, w, "a new cgroup", map[string]bool{pod: false})
		wakes(t, w, WakePods)
		makeCgroup(t, l.dir(pod+"/old"))
		expect(t, w, "below one that is not watched", map[string]bool{})
		if err := w.AddTree(pod); err != nil {
			t.Fatal(err)
		}
		settled(t, w)
		discard(w)
		for _, dir := range []string{pod, pod + "/old"} {
			c := startIn(t, "sleep")
			move(t, c, l.dir(dir))
			if got := changes(t, w, true); len(got) != 1 || got[pod] {
				t.Errorf("a process that moves into %s: %v", dir, got)
			}
			wakes(t, w, WakePods)
		}
		makeCgroup(t, l.dir(pod+"/new"))
		if got := changes(t, w, true); len(got) != 1 || got[pod] {
			t.Errorf("a cgroup in a watched tree: %v", got)
		}
		w.RemoveTree(pod)
		makeCgroup(t, l.dir(pod+"/later"))
		if got := changes(t, w, true); len(got) != 0 {
			t.Errorf("after the watch was removed: %v", got)
		}
		if n := w.kernelWatches(t); n != 1 {
			t.Errorf("%d watches, want 1", n)
		}
	})
}

// A removed cgroup leaves no watch behind, although cgroupfs keeps the watch and the inode.
func TestRemovedCgroupsLeaveNoWatch(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		w := newWaker(t, l)
		rel := ownCgroup(t, l)
		if err := w.AddDir(rel); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			pod := fmt.Sprintf("%s/pod%d", rel, i%2)
			for _, dir := range []string{pod, pod + "/c"} {
				if err := os.Mkdir(l.dir(dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.AddTree(pod); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{pod + "/c", pod} {
				if err := os.Remove(l.dir(dir)); err != nil {
					t.Fatal(err)
				}
			}
			if got := changes(t, w, true); len(got) != 1 || !got[pod] {
				t.Fatalf("removed: %v", got)
			}
		}
		if n := w.kernelWatches(t); n != 1 {
			t.Errorf("the kernel has %d watches, want 1", n)
		}
		if len(w.dirs.watches) != 1 || len(w.dirs.trees) != 0 || len(w.dirs.dirs) != 1 {
			t.Errorf("left: %v, %v, %v", w.dirs.watches, w.dirs.trees, w.dirs.dirs)
		}
	})
}

// AddTree fails if it cannot watch the whole tree.
func TestAddTreeRefuses(t *testing.T) {
	l := realV2(t)
	w := newWaker(t, l)
	rel := ownCgroup(t, l)
	if err := w.AddTree(rel + "/gone"); !errors.Is(err, ErrGone) {
		t.Errorf("gone: %v", err)
	}
	for i := range treeWatches {
		makeCgroup(t, l.dir(fmt.Sprintf("%s/%d", rel, i)))
	}
	if err := w.AddTree(rel); err == nil {
		t.Error("a tree of too many cgroups is watched")
	}
	if n := w.kernelWatches(t); n != 0 || len(w.dirs.watches) != 0 {
		t.Errorf("%d watches left, %v", n, w.dirs.watches)
	}
	w.Close()
	if err := w.AddTree(rel); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	changes(t, w, false)
}

// Changes returns false after the kernel dropped events.
func TestChangesAfterAnOverflow(t *testing.T) {
	l := realV2(t)
	rel := ownCgroup(t, l)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Without the loop, nothing reads the events in the meantime.
	w := &Waker{layout: l, queue: queue{out: make(chan Wake, wakeKinds)}}
	w.dirs = dirWatch{fd: fd, watches: map[int32]watched{}, dirs: map[string]int32{}, trees: map[string][]int32{}}
	wd, err := unix.InotifyAddWatch(fd, l.dir(rel), dirMask)
	if err != nil {
		t.Fatal(err)
	}
	w.dirs.watches[int32(wd)], w.dirs.dirs[rel] = watched{rel: rel}, int32(wd)
	for i := range changesAtMost + 1 {
		dir := filepath.Join(l.dir(rel), fmt.Sprintf("pod%d", i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	complete := true
	for range 100 {
		complete = w.Changes(func(string, bool) {}) && complete
	}
	if complete {
		t.Error("changes beyond all bounds count as complete")
	}
	w.dirs.note(-1, unix.IN_Q_OVERFLOW, nil)
	changes(t, w, false)
	changes(t, w, true)
}

func FuzzEachInotify(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 1, 0, 0x40, 0, 0, 0, 0, 16, 0, 0, 0, 'p', 'o', 'd', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 0, 1, 0, 0x40, 0, 0, 0, 0, 255, 255, 255, 255, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		eachInotify(b, func(_ int32, _ uint32, name []byte) {
			if total += inotifyHeader + len(name); total > len(b) || bytes.ContainsRune(name, 0) {
				t.Errorf("name %q beyond the input", name)
			}
		})
	})
}

// A process that starts directly in a cgroup (clone3(2), CLONE_INTO_CGROUP) writes to no file. The
// kernel then only notifies of cgroup.events if it still has that file in memory.
func TestProcessStartedInAWatchedTree(t *testing.T) {
	l := realV2(t)
	w := newWaker(t, l)
	rel := ownCgroup(t, l)
	makeCgroup(t, l.dir(rel+"/leaf"))
	if err := w.AddTree(rel); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(l.dir(rel + "/leaf"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		need.Linux(t, 5, 7)
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	await(t, "event of the new process", func() bool {
		got := changes(t, w, true)
		_, ok := got[rel]
		return ok
	})
}

// The kernel limits watches per user, so criguard leaves half of them to root's other processes.
func TestTreesLeaveWatchesToOthers(t *testing.T) {
	proc := t.TempDir()
	file := filepath.Join(proc, "sys/fs/inotify/max_user_watches")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"": watchesUnknown, "x": watchesUnknown, "8192": 4096, "9223372036854775807": watchesAtMost} {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (Layout{proc: Proc(proc)}).watchRoom(); got != want {
			t.Errorf("limit %q: room for %d, want %d", text, got, want)
		}
	}
	hierarchies(t, func(t *testing.T, l Layout) {
		w := newWaker(t, l)
		rel := ownCgroup(t, l)
		for _, name := range []string{"/a", "/b"} {
			makeCgroup(t, l.dir(rel+name))
		}
		if err := w.AddTree(rel + "/a"); err != nil {
			t.Fatal(err)
		}
		w.dirs.room = w.kernelWatches(t)
		if err := w.AddTree(rel + "/b"); err == nil {
			t.Error("more watches than there is room for")
		}
		if got := w.kernelWatches(t); got != w.dirs.room {
			t.Errorf("%d watches, want %d", got, w.dirs.room)
		}
		w.RemoveTree(rel + "/a")
		if err := w.AddTree(rel + "/b"); err != nil {
			t.Error(err)
		}
	})
}
