package guard

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// fakeDisks is a diskReader whose filesystems are what the test says, by path; one that
// hangs answers when the test has it answer.
type fakeDisks struct {
	*diskReader
	mu     sync.Mutex
	spaces map[string]cgroup.Space
	errs   map[string]error
	hangs  map[string]chan struct{}
}

func newFakeDisks(t *testing.T, paths fsPaths) *fakeDisks {
	f := &fakeDisks{
		diskReader: newDiskReader(""), spaces: map[string]cgroup.Space{}, errs: map[string]error{}, hangs: map[string]chan struct{}{},
	}
	f.setPaths(paths)
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
		f.close()
		for path := range f.hangs {
			f.answer(path)
		}
	})
	return f
}

// hang lets the next reading of a path wait for answer.
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

// set says what a path's filesystem is from now on.
func (f *fakeDisks) set(path string, s cgroup.Space) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spaces[path] = s
}

// look observes at a time.
func (f *fakeDisks) look(at time.Duration) (policy.Observations, [policy.SignalCount]error) {
	var obs policy.Observations
	var reasons [policy.SignalCount]error
	f.observe(&obs, &reasons, at)
	return obs, reasons
}

func spaceOn(device uint64, available int64) cgroup.Space {
	return cgroup.Space{Device: device, Total: 1000, Available: available, Inodes: 100, InodesFree: 50}
}

var threePaths = fsPaths{node: "/node", image: "/image", container: "/container"}

// Which filesystems share a device is seen anew with every reading; one that cannot be
// read changes nothing.
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
			{"three", spaceOn(1, 1), spaceOn(2, 1), spaceOn(3, 1), nil, policy.DedicatedImageFS},
			{"one again", spaceOn(1, 1), spaceOn(1, 1), spaceOn(1, 1), nil, policy.SingleFS},
			{"two of the same size", root, apart, apart, nil, policy.DedicatedImageFS},
			// Subvolumes of one btrfs each have a device of their own.
			{"subvolumes", root, subvolume, subvolume, nil, policy.SingleFS},
		} {
			f.set("/node", c.node)
			f.set("/image", c.image)
			f.set("/container", c.container)
			f.errs["/image"] = c.err
			if f.look(time.Duration(i+1) * time.Second); f.layout() != c.want {
				t.Errorf("%s: %s, want %s", c.name, f.layout(), c.want)
			}
		}
	})
}

// One filesystem that cannot be read blinds no other, and one that is not known yet is
// no failure.
func TestDiskObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, fsPaths{node: "/node", container: "/container"})
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
		if reasons[policy.NodeFSAvailable] != nil || !errors.Is(reasons[policy.ContainerFSInodesFree], bad) || !errors.Is(reasons[policy.ImageFSAvailable], errNoPath) {
			t.Errorf("reasons: %v", reasons)
		}
	})
}

// Far from a threshold a reading serves for a moment; near one it never does.
func TestDiskCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, fsPaths{node: "/node"})
		for i, c := range []struct {
			calm bool
			at   time.Duration
			want int64 // the reading that is seen
		}{
			{true, time.Second, 0},
			{true, time.Second + diskCalm - 1, 0},
			{true, time.Second + diskCalm, 2},
			{false, time.Second + diskCalm + 1, 3},
			{true, time.Second + diskCalm + 2, 3},
			{false, time.Second + diskCalm + 3, 5},
		} {
			f.set("/node", spaceOn(1, int64(i)))
			f.calm = c.calm
			if obs, _ := f.look(c.at); obs[policy.NodeFSAvailable].Available != c.want {
				t.Errorf("%d: %+v, want %d", i, obs[policy.NodeFSAvailable], c.want)
			}
		}
	})
}

// A filesystem that hangs costs the first pass a little and later ones nothing. Its
// signals fail after a while, until it answers; what it said before is not taken for
// what is now. The others are read afresh all the while.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, fsPaths{node: "/node", image: "/image"})
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
		_, _ = see("the first look", policy.OK, diskWait)
		time.Sleep(diskWait)
		_, _ = see("the second look", policy.OK, 0)
		time.Sleep(diskTooLate)
		if _, err := see("too late", policy.Failed, 0); !errors.Is(err, errDiskHangs) {
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
		if o, _ := see("it hangs again", policy.OK, diskWait); o.Available != 8 {
			t.Errorf("it hangs again: %+v", o)
		}
		time.Sleep(diskTooLate)
		_, _ = see("too late again", policy.Failed, 0)
	})
}

// A filesystem that hangs from the start is not nodefs where that answers. Before that is clear, nodefs
// is not acted on: who is stopped for it depends on what is on it.
func TestDiskHangsAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, fsPaths{node: "/node", image: "/image"})
		f.set("/node", spaceOn(1, 5))
		f.hang("/image")
		if obs, _ := f.look(time.Hour); obs[policy.NodeFSAvailable].Status != policy.Absent {
			t.Errorf("while it may answer: nodefs %+v", obs[policy.NodeFSAvailable])
		}
		obs, reasons := f.look(time.Hour + diskTooLate + time.Second)
		if obs[policy.NodeFSAvailable].Status != policy.OK || !errors.Is(reasons[policy.ImageFSAvailable], errDiskHangs) || f.layout() != policy.DedicatedImageFS {
			t.Errorf("too late: nodefs %+v, imagefs %v, filesystems %s", obs[policy.NodeFSAvailable], reasons[policy.ImageFSAvailable], f.layout())
		}
		f.set("/image", spaceOn(1, 5))
		f.answer("/image")
		synctest.Wait()
		if f.look(time.Hour + diskTooLate + 2*time.Second); f.layout() != policy.SingleFS {
			t.Errorf("it answers that it is nodefs: filesystems %s", f.layout())
		}
	})
}

// Nor is one that fails from the start, and which device another path of the runtime's is on is found
// anew.
func TestDiskFailsAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, fsPaths{node: "/node", image: "/image"})
		f.set("/node", spaceOn(1, 5))
		f.errs["/image"] = errors.New("stale file handle")
		if obs, _ := f.look(time.Hour); obs[policy.NodeFSAvailable].Status != policy.OK || f.layout() != policy.DedicatedImageFS {
			t.Errorf("nodefs %+v, filesystems %s", obs[policy.NodeFSAvailable], f.layout())
		}
		f.set("/other", spaceOn(1, 5))
		f.setPaths(fsPaths{node: "/node", image: "/other"})
		f.hang("/other")
		obs, reasons := f.look(time.Hour + time.Second)
		if obs[policy.NodeFSAvailable].Status != policy.Absent || !errors.Is(reasons[policy.NodeFSAvailable], errNoLayout) {
			t.Errorf("while another path does not answer: nodefs %+v, %v", obs[policy.NodeFSAvailable], reasons[policy.NodeFSAvailable])
		}
		f.answer("/other")
		synctest.Wait()
		if obs, _ := f.look(time.Hour + 2*time.Second); obs[policy.NodeFSAvailable].Status != policy.OK || f.layout() != policy.SingleFS {
			t.Errorf("nodefs %+v, filesystems %s", obs[policy.NodeFSAvailable], f.layout())
		}
	})
}

// Who reclaims waits a little for a filesystem, and not for ever; few goroutines are left behind.
func TestDiskProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, fsPaths{node: "/node"})
		f.set("/node", spaceOn(1, 5))
		if s, err := f.probe("/node"); err != nil || s != spaceOn(1, 5) {
			t.Errorf("%+v, %v", s, err)
		}
		f.hang("/node")
		began := time.Now()
		for range 2 * probesAtMost {
			if _, err := f.probe("/node"); !errors.Is(err, errDiskHangs) {
				t.Errorf("while it hangs: %v", err)
			}
		}
		if took := time.Since(began); took != probesAtMost*diskTooLate {
			t.Errorf("waited for %s", took)
		}
		f.answer("/node")
		synctest.Wait()
		if _, err := f.probe("/node"); err != nil {
			t.Errorf("when it answers: %v", err)
		}
	})
}

// The runtime names another directory while the old one hangs: the new one is read at
// once, what comes of the old one is not taken for it, and no reader stays behind.
func TestDiskPathChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t, fsPaths{node: "/node", image: "/old"})
		image := func(now time.Duration) policy.Observation {
			obs, _ := f.look(now)
			return obs[policy.ImageFSAvailable]
		}
		f.set("/old", spaceOn(2, 1))
		f.set("/new", spaceOn(3, 2))
		f.hang("/old")
		image(time.Second)
		for n := range 3 { // and back
			f.setPaths(fsPaths{node: "/node", image: "/new"})
			if o := image(2 * time.Second); o.Status != policy.OK || o.Available != 2 {
				t.Errorf("the new one: %+v", o)
			}
			f.setPaths(fsPaths{node: "/node", image: "/old"})
			if o := image(time.Minute); o.Status != policy.Failed || len(f.readers) > 3 {
				t.Errorf("%d: the old one: %+v, %d readers", n, o, len(f.readers))
			}
		}
		f.setPaths(fsPaths{node: "/node", image: "/new"})
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

// A closed one is asked for nothing and keeps nobody waiting.
func TestDiskClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiskReader("/")
		var obs policy.Observations
		var reasons [policy.SignalCount]error
		d.observe(&obs, &reasons, time.Second)
		d.close()
		synctest.Wait()
		began := time.Now()
		if d.observe(&obs, &reasons, 2*time.Second); time.Since(began) != 0 {
			t.Errorf("it took %s", time.Since(began))
		}
	})
}

// On real directories: the writable layers are on the images' filesystem unless the
// runtime names another.
func TestDiskReaderReads(t *testing.T) {
	d := newDiskReader(t.TempDir())
	t.Cleanup(d.close)
	var obs policy.Observations
	var reasons [policy.SignalCount]error
	see := func(s policy.Signal) {
		for deadline := time.Now().Add(time.Minute); ; { // a busy machine may take longer than a pass waits
			if d.observe(&obs, &reasons, cgroup.BootTime()); obs[s].Status == policy.OK {
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
	p := d.getPaths()
	p.image = t.TempDir()
	d.setPaths(p)
	see(policy.ContainerFSAvailable)
	if d.layout() != policy.SingleFS || reasons[policy.ImageFSAvailable] != nil {
		t.Errorf("%s, %v", d.layout(), reasons)
	}
}
