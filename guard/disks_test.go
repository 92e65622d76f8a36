package guard

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// fakeDisks is a diskReader whose filesystems answer when the test says so.
type fakeDisks struct {
	*diskReader
	reading chan diskReading
}

func newFakeDisks(t *testing.T) *fakeDisks {
	f := &fakeDisks{
		diskReader: &diskReader{ask: make(chan struct{}), answers: make(chan diskReading, 1), closed: make(chan struct{})},
		reading:    make(chan diskReading, 1),
	}
	go func() {
		for {
			select {
			case <-f.closed:
				return
			case <-f.ask:
			}
			select {
			case <-f.closed:
				return
			case r := <-f.reading:
				f.answers <- r
			}
		}
	}()
	t.Cleanup(f.close)
	return f
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

// Which filesystems share a device is seen anew with every reading; one that cannot be
// read changes nothing.
func TestDiskLayout(t *testing.T) {
	f := newFakeDisks(t)
	bad := errors.New("input/output error")
	for i, c := range []struct {
		node, image, container uint64
		err                    error
		want                   policy.Layout
	}{
		{1, 1, 1, nil, policy.SingleFS},
		{1, 2, 2, nil, policy.DedicatedImageFS},
		{1, 2, 1, nil, policy.SplitFS},
		{1, 1, 1, bad, policy.SplitFS},
		{1, 2, 3, nil, policy.DedicatedImageFS},
		{1, 1, 1, nil, policy.SingleFS},
	} {
		now := time.Duration(i+1) * time.Second
		f.reading <- diskReading{at: now, node: spaceOn(c.node, 1), image: spaceOn(c.image, 1), imageErr: c.err, container: spaceOn(c.container, 1)}
		if f.look(now); f.layout() != c.want {
			t.Errorf("%d: %s, want %s", i, f.layout(), c.want)
		}
	}
	// Subvolumes of one btrfs each have a device of their own.
	subvolume := func(device uint64) cgroup.Space { return cgroup.Space{Device: device, Total: 1000, Available: 1} }
	now := time.Minute
	f.reading <- diskReading{at: now, node: subvolume(1), image: subvolume(2), container: subvolume(2)}
	if f.look(now); f.layout() != policy.SingleFS {
		t.Errorf("subvolumes: %s, want %s", f.layout(), policy.SingleFS)
	}
	// And two of the same size are two.
	image := subvolume(2)
	image.Pool = 7
	now += time.Minute
	f.reading <- diskReading{at: now, node: subvolume(1), image: image, container: image}
	if f.look(now); f.layout() != policy.DedicatedImageFS {
		t.Errorf("two disks: %s, want %s", f.layout(), policy.DedicatedImageFS)
	}
}

// One filesystem that cannot be read blinds no other, and one that is not known yet is
// no failure.
func TestDiskObserve(t *testing.T) {
	f := newFakeDisks(t)
	bad := errors.New("input/output error")
	f.reading <- diskReading{at: time.Second, node: spaceOn(1, 300), imageErr: bad, containerErr: errNoPath}
	obs, reasons := f.look(2 * time.Second)
	for s, want := range map[policy.Signal]policy.Observation{
		policy.NodeFSAvailable:      policy.ObserveSpace(300, 1000, time.Second),
		policy.NodeFSInodesFree:     policy.ObserveSpace(50, 100, time.Second),
		policy.ImageFSAvailable:     {At: 2 * time.Second, Status: policy.Failed},
		policy.ImageFSInodesFree:    {At: 2 * time.Second, Status: policy.Failed},
		policy.ContainerFSAvailable: {At: 2 * time.Second, Status: policy.Absent},
	} {
		if obs[s] != want {
			t.Errorf("%s: %+v, want %+v", s, obs[s], want)
		}
	}
	if reasons[policy.NodeFSAvailable] != nil || !errors.Is(reasons[policy.ImageFSInodesFree], bad) || !errors.Is(reasons[policy.ContainerFSAvailable], errNoPath) {
		t.Errorf("reasons: %v", reasons)
	}
}

// Far from a threshold a reading serves for a moment; near one it never does.
func TestDiskCalm(t *testing.T) {
	f := newFakeDisks(t)
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
		select {
		case <-f.reading: // the one of before was not asked for
		default:
		}
		f.reading <- diskReading{at: c.at, node: spaceOn(1, int64(i))}
		f.calm = c.calm
		if obs, _ := f.look(c.at); obs[policy.NodeFSAvailable].Available != c.want {
			t.Errorf("%d: %+v, want %d", i, obs[policy.NodeFSAvailable], c.want)
		}
	}
}

// A device that hangs costs the first pass a little and later ones nothing. Its
// signals fail after a while, until it answers; what it said before is not taken for
// what is now.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDisks(t)
		started := time.Now()
		look := func() (policy.Observation, time.Duration) {
			began := time.Now()
			obs, _ := f.look(time.Hour + time.Since(started))
			return obs[policy.NodeFSAvailable], time.Since(began)
		}
		if o, took := look(); o.Status != policy.Absent || took != diskWait {
			t.Errorf("the first look: %+v after %s", o, took)
		}
		time.Sleep(diskWait)
		if o, took := look(); o.Status != policy.Absent || took != 0 {
			t.Errorf("the second look: %+v after %s", o, took)
		}
		time.Sleep(diskTooLate)
		o, took := look()
		_, reasons := f.look(time.Hour + time.Since(started))
		if o.Status != policy.Failed || took != 0 || !errors.Is(reasons[policy.NodeFSAvailable], errDiskHangs) {
			t.Errorf("too late: %+v after %s, %v", o, took, reasons[policy.NodeFSAvailable])
		}
		f.reading <- diskReading{at: time.Hour + time.Second, node: spaceOn(1, 7)}
		synctest.Wait()
		if o, took := look(); o.Status != policy.OK || o.Available != 7 || took != 0 {
			t.Errorf("it answers: %+v after %s", o, took)
		}
		f.reading <- diskReading{at: time.Hour + 3*time.Second, node: spaceOn(1, 8)}
		if o, _ := look(); o.Available != 8 {
			t.Errorf("afresh: %+v", o)
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
	see := func() {
		for deadline := time.Now().Add(10 * time.Second); ; { // a busy machine may take longer than a pass waits
			before := d.last.at
			if d.observe(&obs, &reasons, cgroup.BootTime()); d.last.at != before {
				return
			} else if time.Now().After(deadline) {
				t.Fatal("no reading")
			}
		}
	}
	see()
	if obs[policy.NodeFSAvailable].Status != policy.OK || obs[policy.ImageFSAvailable].Status != policy.Absent {
		t.Errorf("before the runtime tells: %+v", obs)
	}
	p := d.getPaths()
	p.image = t.TempDir()
	d.setPaths(p)
	see()
	if obs[policy.ContainerFSAvailable].Status != policy.OK || d.layout() != policy.SingleFS || reasons[policy.ImageFSAvailable] != nil {
		t.Errorf("%+v, %s, %v", obs[policy.ContainerFSAvailable], d.layout(), reasons)
	}
}
