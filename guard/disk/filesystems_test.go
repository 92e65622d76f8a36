package disk

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// fakeDisks is a Watcher whose filesystems the test sets by path. A path that hangs answers when the test
// calls answer.
type fakeDisks struct {
	*Watcher
	mu     sync.Mutex
	spaces map[string]cgroup.Space
	errs   map[string]error
	hangs  map[string]chan struct{}
}

func newFakeDisks(t *testing.T, paths Paths) *fakeDisks {
	f := &fakeDisks{
		Watcher: NewWatcher("", nil), spaces: map[string]cgroup.Space{}, errs: map[string]error{}, hangs: map[string]chan struct{}{},
	}
	f.UpdatePaths(func(p *Paths) { *p = paths })
	f.read = func(path string) (cgroup.Space, error) {
		f.mu.Lock()
		hangs := f.hangs[path]
		f.mu.Unlock()
		if hangs != nil {
			<-hangs
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.spaces[path], f.errs[path]
	}
	t.Cleanup(func() {
		f.Close()
		for path := range f.hangs {
			f.answer(path)
		}
	})
	return f
}

// hang makes the next read of a path block until answer.
func (f *fakeDisks) hang(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hangs[path] = make(chan struct{})
}

func (f *fakeDisks) answer(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.hangs[path])
	delete(f.hangs, path)
}

// set sets a path's filesystem from now on.
func (f *fakeDisks) set(path string, s cgroup.Space) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spaces[path] = s
}

// look observes at the given time.
func (f *fakeDisks) look(at time.Duration) (policy.Observations, [policy.SignalCount]error) {
	var obs policy.Observations
	var reasons [policy.SignalCount]error
	f.Observe(&obs, &reasons, at)
	return obs, reasons
}

func spaceOn(device uint64, available int64) cgroup.Space {
	return cgroup.Space{Device: device, Total: 1000, Available: available, Inodes: 100, InodesFree: 50}
}

var threePaths = Paths{Node: "/node", Image: "/image", Container: "/container"}

// Layers are in memory if their own filesystem is; while it cannot be read, nothing changes.
func TestLayersInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, threePaths)
		disk, memory := spaceOn(1, 1), spaceOn(2, 1)
		memory.InMemory = true
		for i, c := range []struct {
			node, container cgroup.Space
			err             error
			want            bool
		}{
			{disk, memory, errors.New("input/output error"), false},
			{memory, disk, nil, false},
			{disk, memory, nil, true},
			{disk, disk, errors.New("input/output error"), true},
			{disk, disk, nil, false},
		} {
			f.set("/node", c.node)
			f.set("/image", c.node)
			f.set("/container", c.container)
			f.errs["/container"] = c.err
			if f.look(time.Duration(i+1) * time.Second); f.LayersInMemory() != c.want {
				t.Errorf("%d: %t, want %t", i, f.LayersInMemory(), c.want)
			}
		}
	})
}

// The layout is detected again with every reading; a filesystem that cannot be read changes nothing.
func TestDiskLayout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, threePaths)
		subvolume := cgroup.Space{Device: 2, Total: 1000, Available: 1}
		root, apart := subvolume, subvolume
		root.Device, apart.Pool = 1, 7
		for i, c := range []struct {
			name                   string
			node, image, container cgroup.Space
			err                    error
			want                   policy.Layout
		}{
			{"one", spaceOn(1, 1), spaceOn(1, 1), spaceOn(1, 1), nil, policy.SingleFS},
			{"two", spaceOn(1, 1), spaceOn(2, 1), spaceOn(2, 1), nil, policy.DedicatedImageFS},
			{"layers beside the node", spaceOn(1, 1), spaceOn(2, 1), spaceOn(1, 1), nil, policy.SplitFS},
			{"one cannot be read", spaceOn(1, 1), spaceOn(1, 1), spaceOn(1, 1), errors.New("input/output error"), policy.SplitFS},
			{"three", spaceOn(1, 1), spaceOn(2, 1), spaceOn(3, 1), nil, policy.SeparateFS},
			{"images beside the node", spaceOn(1, 1), spaceOn(1, 1), spaceOn(3, 1), nil, policy.DedicatedContainerFS},
			{"one again", spaceOn(1, 1), spaceOn(1, 1), spaceOn(1, 1), nil, policy.SingleFS},
			{"two of the same size", root, apart, apart, nil, policy.DedicatedImageFS},
			// Subvolumes of one btrfs each have their own device number.
			{"subvolumes", root, subvolume, subvolume, nil, policy.SingleFS},
		} {
			f.set("/node", c.node)
			f.set("/image", c.image)
			f.set("/container", c.container)
			f.errs["/image"] = c.err
			if f.look(time.Duration(i+1) * time.Second); f.Layout() != c.want {
				t.Errorf("%s: %s, want %s", c.name, f.Layout(), c.want)
			}
		}
	})
}

// One unreadable filesystem does not affect the others, and an unknown path is not a failure.
func TestDiskObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, Paths{Node: "/node", Container: "/container"})
		bad := errors.New("input/output error")
		f.set("/node", spaceOn(1, 300))
		f.errs["/container"] = bad
		obs, reasons := f.look(2 * time.Second)
		for s, want := range map[policy.Signal]policy.Observation{
			policy.NodeFSAvailable:       policy.ObserveSpace(300, 1000, 2*time.Second),
			policy.NodeFSInodesFree:      policy.ObserveSpace(50, 100, 2*time.Second),
			policy.ImageFSAvailable:      {At: 2 * time.Second, Status: policy.Absent},
			policy.ContainerFSAvailable:  {At: 2 * time.Second, Status: policy.Failed},
			policy.ContainerFSInodesFree: {At: 2 * time.Second, Status: policy.Failed},
		} {
			if obs[s] != want {
				t.Errorf("%s: %+v, want %+v", s, obs[s], want)
			}
		}
		if reasons[policy.NodeFSAvailable] != nil || !errors.Is(reasons[policy.ContainerFSInodesFree], bad) || !errors.Is(reasons[policy.ImageFSAvailable], ErrNoPath) {
			t.Errorf("reasons: %v", reasons)
		}
	})
}

// A reading serves until it is too old. The next one is read in the background before that.
func TestDiskMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, Paths{Node: "/node"})
		for i, c := range []struct {
			age, at time.Duration
			want    int64 // the reading that is returned
		}{
			{5 * time.Second, time.Second, 0},
			{5 * time.Second, 5*time.Second - 1, 0},
			{5 * time.Second, 5 * time.Second, 0},
			{5 * time.Second, 6 * time.Second, 2},
			{5 * time.Second, 10 * time.Second, 4},
			{0, 10*time.Second + 1, 5},
			{time.Second, 10*time.Second + 2, 5},
			{time.Second, 11 * time.Second, 5},
			{time.Second, 11*time.Second + 1, 7},
			{0, 11*time.Second + 2, 9},
		} {
			f.set("/node", spaceOn(1, int64(i)))
			f.SetMaxAge(c.age)
			if obs, _ := f.look(c.at); obs[policy.NodeFSAvailable].Available != c.want {
				t.Errorf("%d: %+v, want %d", i, obs[policy.NodeFSAvailable], c.want)
			}
			synctest.Wait()
		}
	})
}

// A slow filesystem delays no pass while its last reading serves. One that hangs is waited for at no later pass either.
func TestDiskIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, Paths{Node: "/node"})
		f.set("/node", spaceOn(1, 1))
		f.SetMaxAge(5 * time.Second)
		began := time.Now()
		_, _ = f.look(time.Second)
		f.hang("/node")
		for _, c := range []struct {
			at   time.Duration
			want policy.Status
		}{{5 * time.Second, policy.OK}, {6 * time.Second, policy.OK}, {7*time.Second + 1, policy.Failed}} {
			if obs, _ := f.look(c.at); obs[policy.NodeFSAvailable].Status != c.want {
				t.Errorf("after %s: %+v, want %s", c.at, obs[policy.NodeFSAvailable], c.want)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the passes waited for %s", took)
		}
		f.set("/node", spaceOn(1, 2))
		f.answer("/node")
		synctest.Wait()
		if obs, _ := f.look(8 * time.Second); obs[policy.NodeFSAvailable].Available != 2 {
			t.Errorf("it answers: %+v", obs[policy.NodeFSAvailable])
		}
	})
}

// A hung filesystem delays the first pass a little and later passes not at all. Its signals fail after a
// timeout, until it answers, and its old value is not used as a current one. The other filesystems are still
// read each time.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, Paths{Node: "/node", Image: "/image"})
		started, reads := time.Now(), int64(0)
		see := func(what string, status policy.Status, within time.Duration) (policy.Observation, error) {
			t.Helper()
			reads++
			f.set("/node", spaceOn(1, reads))
			began := time.Now()
			obs, reasons := f.look(time.Hour + time.Since(started))
			node, image, layers := obs[policy.NodeFSAvailable], obs[policy.ImageFSAvailable], obs[policy.ContainerFSInodesFree]
			if node.Status != policy.OK || node.Available != reads || reasons[policy.NodeFSAvailable] != nil {
				t.Errorf("%s: nodefs: %+v, want reading %d", what, node, reads)
			}
			if took := time.Since(began); took != within || image.Status != status || layers.Status != status {
				t.Errorf("%s: imagefs: %+v after %s", what, image, took)
			}
			return image, reasons[policy.ContainerFSAvailable]
		}
		f.set("/image", spaceOn(2, 6))
		_, _ = see("at first", policy.OK, 0)
		f.hang("/image")
		_, _ = see("the first look", policy.OK, ReadTimeout)
		time.Sleep(ReadTimeout)
		_, _ = see("the second look", policy.OK, 0)
		time.Sleep(HangTimeout)
		if _, err := see("too late", policy.Failed, 0); !errors.Is(err, ErrHangs) {
			t.Errorf("too late: %v", err)
		}
		f.set("/image", spaceOn(2, 7))
		f.answer("/image")
		synctest.Wait()
		if o, err := see("it answers", policy.OK, 0); o.Available != 7 || err != nil {
			t.Errorf("it answers: %+v, %v", o, err)
		}
		f.set("/image", spaceOn(2, 8))
		if o, _ := see("afresh", policy.OK, 0); o.Available != 8 {
			t.Errorf("afresh: %+v", o)
		}
		f.hang("/image")
		if o, _ := see("it hangs again", policy.OK, ReadTimeout); o.Available != 8 {
			t.Errorf("it hangs again: %+v", o)
		}
		time.Sleep(HangTimeout)
		_, _ = see("too late again", policy.Failed, 0)
	})
}

// A filesystem that hangs from the start counts as separate from nodefs if nodefs answers. Until that is
// decided, nodefs has no signal: the victim depends on the layout.
func TestDiskHangsAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, Paths{Node: "/node", Image: "/image"})
		f.set("/node", spaceOn(1, 5))
		f.hang("/image")
		obs, reasons := f.look(time.Hour)
		if obs[policy.NodeFSAvailable].Status != policy.Absent || !errors.Is(reasons[policy.ImageFSAvailable], ErrUnread) {
			t.Errorf("while it may answer: nodefs %+v, imagefs %v", obs[policy.NodeFSAvailable], reasons[policy.ImageFSAvailable])
		}
		obs, reasons = f.look(time.Hour + HangTimeout + time.Second)
		if obs[policy.NodeFSAvailable].Status != policy.OK || !errors.Is(reasons[policy.ImageFSAvailable], ErrHangs) || f.Layout() != policy.DedicatedImageFS {
			t.Errorf("too late: nodefs %+v, imagefs %v, filesystems %s", obs[policy.NodeFSAvailable], reasons[policy.ImageFSAvailable], f.Layout())
		}
		f.set("/image", spaceOn(1, 5))
		f.answer("/image")
		synctest.Wait()
		if f.look(time.Hour + HangTimeout + 2*time.Second); f.Layout() != policy.SingleFS {
			t.Errorf("it answers that it is nodefs: filesystems %s", f.Layout())
		}
	})
}

// A filesystem that fails from the start counts as separate too. If the runtime reports another path, the
// layout is detected again.
func TestDiskFailsAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, Paths{Node: "/node", Image: "/image"})
		f.set("/node", spaceOn(1, 5))
		f.errs["/image"] = errors.New("stale file handle")
		if obs, _ := f.look(time.Hour); obs[policy.NodeFSAvailable].Status != policy.OK || f.Layout() != policy.DedicatedImageFS {
			t.Errorf("nodefs %+v, filesystems %s", obs[policy.NodeFSAvailable], f.Layout())
		}
		f.set("/other", spaceOn(1, 5))
		f.UpdatePaths(func(p *Paths) { p.Image = "/other" })
		f.hang("/other")
		obs, reasons := f.look(time.Hour + time.Second)
		if obs[policy.NodeFSAvailable].Status != policy.Absent || !errors.Is(reasons[policy.NodeFSAvailable], ErrNoLayout) {
			t.Errorf("while another path does not answer: nodefs %+v, %v", obs[policy.NodeFSAvailable], reasons[policy.NodeFSAvailable])
		}
		f.answer("/other")
		synctest.Wait()
		if obs, _ := f.look(time.Hour + 2*time.Second); obs[policy.NodeFSAvailable].Status != policy.OK || f.Layout() != policy.SingleFS {
			t.Errorf("nodefs %+v, filesystems %s", obs[policy.NodeFSAvailable], f.Layout())
		}
	})
}

// A reclaim waits a limited time for a filesystem and leaves few goroutines behind.
func TestDiskProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, Paths{Node: "/node"})
		f.set("/node", spaceOn(1, 5))
		if s, err := f.Read("/node"); err != nil || s != spaceOn(1, 5) {
			t.Errorf("%+v, %v", s, err)
		}
		f.hang("/node")
		began := time.Now()
		for range 2 * probesAtMost {
			if _, err := f.Read("/node"); !errors.Is(err, ErrHangs) {
				t.Errorf("while it hangs: %v", err)
			}
		}
		if took := time.Since(began); took != probesAtMost*HangTimeout {
			t.Errorf("waited for %s", took)
		}
		f.answer("/node")
		synctest.Wait()
		if _, err := f.Read("/node"); err != nil {
			t.Errorf("when it answers: %v", err)
		}
	})
}

// The runtime reports another directory while the old one hangs: the new one is read at once, an answer from
// the old one is not used for it, and no reader stays behind.
func TestDiskPathChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, Paths{Node: "/node", Image: "/old"})
		image := func(now time.Duration) policy.Observation {
			obs, _ := f.look(now)
			return obs[policy.ImageFSAvailable]
		}
		f.set("/old", spaceOn(2, 1))
		f.set("/new", spaceOn(3, 2))
		f.hang("/old")
		image(time.Second)
		for n := range 3 { // and back
			f.UpdatePaths(func(p *Paths) { p.Image = "/new" })
			if o := image(2 * time.Second); o.Status != policy.OK || o.Available != 2 {
				t.Errorf("the new one: %+v", o)
			}
			f.UpdatePaths(func(p *Paths) { p.Image = "/old" })
			if o := image(time.Minute); o.Status != policy.Failed || len(f.readers) > 3 {
				t.Errorf("%d: the old one: %+v, %d readers", n, o, len(f.readers))
			}
		}
		f.UpdatePaths(func(p *Paths) { p.Image = "/new" })
		image(2 * time.Minute)
		f.answer("/old")
		synctest.Wait()
		for n := range 2 {
			if o := image(3 * time.Minute); o.Available != 2 {
				t.Errorf("%d: after the old one has answered: %+v", n, o)
			}
		}
		if len(f.readers) != 2 {
			t.Errorf("%d readers", len(f.readers))
		}
	})
}

// A closed Watcher reads nothing and does not block its caller.
func TestDiskClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewWatcher("/", nil)
		var obs policy.Observations
		var reasons [policy.SignalCount]error
		d.Observe(&obs, &reasons, time.Second)
		d.Close()
		synctest.Wait()
		began := time.Now()
		if d.Observe(&obs, &reasons, 2*time.Second); time.Since(began) != 0 {
			t.Errorf("it took %s", time.Since(began))
		}
	})
}

// On real directories, the writable layers are on the images' filesystem unless the runtime reports another
// one.
func TestDiskReaderReads(t *testing.T) {
	d := NewWatcher(t.TempDir(), nil)
	t.Cleanup(d.Close)
	var obs policy.Observations
	var reasons [policy.SignalCount]error
	see := func(s policy.Signal) {
		for deadline := time.Now().Add(time.Minute); ; { // a busy machine may take longer than a pass waits
			if d.Observe(&obs, &reasons, cgroup.BootTime()); obs[s].Status == policy.OK {
				return
			} else if time.Now().After(deadline) {
				t.Fatal("no reading")
			}
		}
	}
	see(policy.NodeFSAvailable)
	if obs[policy.ImageFSAvailable].Status != policy.Absent {
		t.Errorf("before the runtime tells: %+v", obs)
	}
	d.UpdatePaths(func(p *Paths) { p.Image = t.TempDir() })
	see(policy.ContainerFSAvailable)
	if d.Layout() != policy.SingleFS || reasons[policy.ImageFSAvailable] != nil {
		t.Errorf("%s, %v", d.Layout(), reasons)
	}
}

// On btrfs, what was deleted is free only after a commit. A reclaim asks for it, and so do passes near a threshold, but not more often
// than once a second, and not while one is under way.
func TestAsksForCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := NewWatcher("/btrfs", func(dir string) (cgroup.Space, error) {
			return cgroup.Space{Device: uint64(len(dir)), Total: 1, ByCommit: dir == "/btrfs"}, nil
		})
		defer func() { d.Close(); synctest.Wait() }()
		commits, hangs := 0, make(chan struct{})
		d.commit = func(dir string) error {
			if commits++; dir != "/btrfs" {
				t.Errorf("a commit of %s", dir)
			}
			<-hangs
			return nil
		}
		want := func(what string, n int) {
			t.Helper()
			if synctest.Wait(); commits != n {
				t.Errorf("%s: %d commits, want %d", what, commits, n)
			}
		}
		read := func(dir string) {
			if _, err := d.Read(dir); err != nil {
				t.Error(err)
			}
		}
		observe := func() {
			time.Sleep(10 * time.Millisecond)
			var obs policy.Observations
			var reasons [policy.SignalCount]error
			d.Observe(&obs, &reasons, time.Since(began)+time.Hour)
		}
		d.SetMaxAge(10 * time.Second)
		observe()
		read("/ext4")
		want("far from a threshold", 0)
		read("/btrfs")
		read("/btrfs")
		want("by a reclaim", 1)
		time.Sleep(time.Minute)
		read("/btrfs")
		want("while one is under way", 1)
		close(hangs)
		synctest.Wait()
		read("/btrfs")
		want("within a second", 1)
		d.SetMaxAge(0)
		observe()
		want("within a second near a threshold", 1)
		time.Sleep(commitEvery)
		observe()
		want("near a threshold", 2)
	})
}
