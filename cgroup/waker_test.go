package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/test/leak"
	"github.com/criguard/criguard/test/need"
)

func newWaker(t testing.TB, l Layout) *Waker {
	t.Helper()
	w, err := NewWaker(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// wakes waits for a wake-up of one kind and skips others.
func wakes(t testing.TB, w *Waker, kind Wake) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case got, ok := <-w.Wakes():
			if !ok {
				t.Fatalf("closed, waiting for %s", kind)
			}
			if got == kind {
				return
			}
		case <-timeout:
			t.Fatalf("no wake %s within 10 s", kind)
		}
	}
}

// quiet takes the queued wake-ups and fails on one of this kind.
func quiet(t testing.TB, w *Waker, kind Wake) {
	t.Helper()
	for {
		select {
		case got := <-w.Wakes():
			if got == kind {
				t.Errorf("woken by %s for nothing", kind)
			}
		default:
			return
		}
	}
}

// settled waits until the loop has handled all earlier events. It relies on the kernel's order of
// events.
func settled(t testing.TB, w *Waker) {
	t.Helper()
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan struct{})
	var once sync.Once
	s := &source{fd: fd, wake: "settled", drain: func(int, uint32) bool {
		once.Do(func() { close(taken) })
		return false
	}}
	if err := w.add(s, unix.EPOLLIN); err != nil {
		t.Fatal(err)
	}
	<-taken
}

// discard takes all queued wake-ups.
func discard(w *Waker) {
	for len(w.Wakes()) > 0 {
		<-w.Wakes()
	}
}

func TestQueueMergesAndNeverBlocks(t *testing.T) {
	q := queue{out: make(chan Wake, wakeKinds)}
	kinds := []Wake{WakeMemory, WakeMemoryEvents, WakeMemoryStall, WakeIOStall, WakeMounts, WakePods}
	for range 10_000 {
		q.put(WakeMemory)
	}
	for _, k := range kinds {
		q.put(k)
		q.put(WakeMemory)
	}
	got := map[Wake]int{}
	for range kinds {
		got[<-q.out]++
	}
	for _, k := range kinds {
		if got[k] != 1 {
			t.Errorf("%s waits %d times, want once", k, got[k])
		}
	}
	if len(q.out) != 0 {
		t.Errorf("%d more wakes", len(q.out))
	}
	if n := testing.AllocsPerRun(100, func() { q.put(WakePods) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	q.close()
	q.put(WakeMemory) // put after close does nothing
	if w, ok := <-q.out; !ok || w != WakePods {
		t.Errorf("got %q, %t", w, ok)
	}
	if _, ok := <-q.out; ok {
		t.Error("not closed")
	}
}

func TestQueueWithManySenders(t *testing.T) {
	q := queue{out: make(chan Wake, wakeKinds)}
	var senders sync.WaitGroup
	for _, k := range []Wake{WakeMemory, WakeMounts, WakePods, WakeIOStall} {
		senders.Go(func() {
			for range 2000 {
				q.put(k)
			}
		})
	}
	seen := map[Wake]bool{}
	ended := make(chan struct{})
	go func() {
		for w := range q.out {
			seen[w] = true
		}
		close(ended)
	}()
	senders.Wait()
	q.close()
	<-ended
	if len(seen) != 4 {
		t.Errorf("seen %v: a kind was lost", seen)
	}
}

func TestWakerCoalescesAStorm(t *testing.T) {
	l := realV2(t)
	w := newWaker(t, l)
	rel := ownCgroup(t, l)
	if err := w.AddDir(rel); err != nil {
		t.Fatal(err)
	}
	// The wake-ups stay queued in the meantime.
	for range 500 {
		dir := filepath.Join(l.dir(rel), "pod")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, w)
	wakes(t, w, WakePods)
	settled(t, w)
	quiet(t, w, WakePods)
	// It still wakes after that.
	makeCgroup(t, l.dir(rel+"/another"))
	wakes(t, w, WakePods)
}

func TestWakerWatchesDirs(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		w := newWaker(t, l)
		rel := ownCgroup(t, l)
		if err := w.AddDir(rel + "/not/there"); !errors.Is(err, ErrGone) {
			t.Errorf("not there: %v, want ErrGone", err)
		}
		before := len(leak.OpenDescriptors())
		for range 3 {
			if err := w.AddDir(rel); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(leak.OpenDescriptors()); n != before {
			t.Errorf("%d descriptors more for a directory that is watched already", n-before)
		}
		makeCgroup(t, l.dir(rel+"/pod"))
		wakes(t, w, WakePods)
		if err := os.Remove(l.dir(rel + "/pod")); err != nil {
			t.Fatal(err)
		}
		wakes(t, w, WakePods)
		// The watched cgroup is removed and created again.
		if err := os.Remove(l.dir(rel)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(l.dir(rel), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := w.AddDir(rel); err != nil {
			t.Fatal(err)
		}
		settled(t, w)
		discard(w)
		makeCgroup(t, l.dir(rel+"/pod"))
		wakes(t, w, WakePods)
	})
}

// memory.events needs the v2 memory controller, but cgroup.events polls in the same way.
func TestWakerWatchesEvents(t *testing.T) {
	l := realV2(t)
	w := newWaker(t, l)
	rel := ownCgroup(t, l)
	if err := w.addEvents(rel, l.dir(rel)+"/cgroup.events"); err != nil {
		t.Fatal(err)
	}
	settled(t, w)
	quiet(t, w, WakeMemoryEvents)
	c := startIn(t, "sleep", l.dir(rel))
	wakes(t, w, WakeMemoryEvents)
	if _, err := l.Kill(rel); err != nil {
		t.Fatal(err)
	}
	wakes(t, w, WakeMemoryEvents)
	<-c.ended
	await(t, "an empty cgroup", func() bool {
		populated, err := l.Populated(rel)
		return err == nil && !populated
	})
	// A watch of a removed cgroup does not spin, and the next one replaces it.
	if err := os.Remove(l.dir(rel)); err != nil {
		t.Fatal(err)
	}
	settled(t, w)
	discard(w)
	settled(t, w)
	quiet(t, w, WakeMemoryEvents)
	if err := os.Mkdir(l.dir(rel), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := w.addEvents(rel, l.dir(rel)+"/cgroup.events"); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	if n := len(w.sources); n != 1 {
		t.Errorf("%d sources for one cgroup that is watched anew", n)
	}
	w.mu.Unlock()
	startIn(t, "sleep", l.dir(rel))
	wakes(t, w, WakeMemoryEvents)
}

func TestAddMemoryEvents(t *testing.T) {
	l := testTree(t, "6.1-v2-systemd")
	w := newWaker(t, l)
	// Plain files cannot be polled: this error shows that the file was found.
	if err := w.AddMemoryEvents("/kubepods.slice"); !errors.Is(err, unix.EPERM) {
		t.Errorf("a plain file: %v, want that it cannot be polled", err)
	}
	if err := w.AddMemoryEvents("/"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("the root: %v, want ErrUnsupported", err)
	}
	if err := w.AddMemoryEvents("/gone"); !errors.Is(err, ErrGone) || errors.Is(err, ErrUnsupported) {
		t.Errorf("gone: %v, want ErrGone", err)
	}
	if err := newWaker(t, testTree(t, "5.10-v1-cgroupfs")).AddMemoryEvents("/kubepods"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("v1: %v, want ErrUnsupported", err)
	}
}

func TestWakerWatchesMounts(t *testing.T) {
	l := realV2(t)
	w := newWaker(t, l)
	if err := w.AddMounts(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	need.Mount(t, "criguard-test", dir, "tmpfs", 0, "size=4k")
	wakes(t, w, WakeMounts)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	wakes(t, w, WakeMounts)
	l.proc = Proc(t.TempDir())
	if err := newWaker(t, l).AddMounts(); err == nil {
		t.Error("no mountinfo, and no error")
	}
}

func TestAddStall(t *testing.T) {
	l := realV2(t)
	need.PSI(t)
	for _, kind := range []Wake{WakeMemoryStall, WakeIOStall} {
		w := newWaker(t, l)
		used, err := w.AddStall(kind, 100*time.Millisecond, time.Second)
		if errors.Is(err, ErrUnsupported) {
			need.SysResource(t)
		}
		// One second with CAP_SYS_RESOURCE, else the next multiple of two.
		if err != nil || (used != time.Second && used != 2*time.Second) {
			t.Errorf("%s: window %s, %v", kind, used, err)
		}
	}
	w := newWaker(t, l)
	if used, err := w.AddStall(WakeMemoryStall, time.Second, 3*time.Second); err != nil || (used != 3*time.Second && used != 4*time.Second) {
		t.Errorf("window %s of 3 s, %v", used, err)
	}
	if used, err := w.AddStall(WakeMemoryStall, time.Second, 10*time.Second); err != nil || used != 10*time.Second {
		t.Errorf("window %s of 10 s, %v", used, err)
	}
}

// The file of a pressure trigger disappears with its cgroup. From then on the trigger reports an error
// forever.
func TestStallTriggerThatGoes(t *testing.T) {
	l := realV2(t)
	rel := ownCgroup(t, l)
	fd, err := openTrigger(l.dir(rel)+"/memory.pressure", time.Second, unprivilegedWindow)
	if err != nil {
		need.PSI(t)
		need.SysResource(t)
		t.Fatal(err)
	}
	w := newWaker(t, l)
	if err := w.add(&source{fd: fd, wake: WakeMemoryStall, drain: triggered}, unix.EPOLLPRI); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(l.dir(rel)); err != nil {
		t.Fatal(err)
	}
	await(t, "an end of the watch", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.sources) == 0
	})
}

func TestAddStallWithoutPrivilege(t *testing.T) {
	l := realV2(t)
	need.PSI(t)
	if !isolated(t) {
		return
	}
	// Capabilities are per thread, so other tests keep theirs.
	var header = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	w := newWaker(t, l)
	used, err := w.AddStall(WakeMemoryStall, 100*time.Millisecond, time.Second)
	switch {
	case errors.Is(err, ErrUnsupported): // linux below 6.4
	case err != nil || used != 2*time.Second:
		t.Errorf("window %s, %v; want 2 s", used, err)
	}
}

func TestAddStallRefuses(t *testing.T) {
	l := testTree(t, "5.10-v1-cgroupfs")
	w := newWaker(t, l)
	if _, err := w.AddStall(WakeMemoryStall, time.Second, 2*time.Second); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without PSI: %v, want ErrUnsupported", err)
	}
	for _, c := range []struct {
		kind              Wake
		threshold, window time.Duration
	}{
		{WakeMounts, time.Second, 2 * time.Second}, {"", time.Second, 2 * time.Second},
		{WakeMemoryStall, 0, time.Second}, {WakeMemoryStall, -1, time.Second}, {WakeMemoryStall, 2 * time.Second, time.Second},
		{WakeIOStall, time.Millisecond, 499 * time.Millisecond}, {WakeIOStall, time.Second, 11 * time.Second},
	} {
		if _, err := w.AddStall(c.kind, c.threshold, c.window); err == nil || errors.Is(err, ErrUnsupported) {
			t.Errorf("%q, %s in %s: %v, want a refusal", c.kind, c.threshold, c.window, err)
		}
	}
	if len(w.sources) != 0 {
		t.Errorf("%d sources left", len(w.sources))
	}
}

func TestRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{1: 2, 2: 2, 3: 4, 4: 4} {
		if got := roundUp(d*time.Second, 2*time.Second); got != want*time.Second {
			t.Errorf("%d s: %s", d, got)
		}
	}
}

func TestWakerClose(t *testing.T) {
	l := realV1(t)
	before := leak.OpenDescriptors()
	w, err := NewWaker(l)
	if err != nil {
		t.Fatal(err)
	}
	rel := ownCgroup(t, l)
	for name, err := range map[string]error{
		"thresholds": w.SetMemoryThresholds(rel, []int64{1 << 40, 2 << 40}), "dir": w.AddDir(rel), "mounts": w.AddMounts(),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := w.SetMemoryThresholds(rel, []int64{3 << 40, 4 << 40}); err != nil {
		t.Error(err) // arming while the waker is closed
	}
	var closers sync.WaitGroup
	for range 3 {
		closers.Go(w.Close)
	}
	closers.Wait()
	for {
		if _, ok := <-w.Wakes(); !ok {
			break
		}
	}
	for name, err := range map[string]error{
		"thresholds": w.SetMemoryThresholds(rel, []int64{1 << 40}), "dir": w.AddDir(rel), "mounts": w.AddMounts(),
	} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s after Close: %v, want os.ErrClosed", name, err)
		}
	}
	for fd, what := range leak.OpenDescriptors() {
		if _, was := before[fd]; !was {
			t.Errorf("descriptor %s is left: %s", fd, what)
		}
	}
}
