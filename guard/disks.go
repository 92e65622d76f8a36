package guard

import (
	"errors"
	"sync"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// diskReader reads the filesystems in a goroutine of its own, so that a device
// that hangs never holds the loop up: its signals turn failed, the others go on.
type diskReader struct {
	ask     chan struct{}
	answers chan diskReading
	closed  chan struct{}

	mu    sync.Mutex
	paths fsPaths

	last  diskReading
	asked time.Duration // when the reading under way was asked for; 0 = none is
	kind  policy.Layout
	// calm: no filesystem is near a threshold. What was read a moment ago will do then:
	// near one of memory there is a pass every 5 ms.
	calm bool
}

// fsPaths are directories on the filesystems to watch; "" = not known yet.
type fsPaths struct{ node, image, container string }

// diskReading is one reading of all of them.
type diskReading struct {
	at                     time.Duration
	node, image, container cgroup.Space
	nodeErr, imageErr      error
	containerErr           error
}

const (
	diskWait    = 50 * time.Millisecond  // how long a pass waits for one
	diskTooLate = 2 * time.Second        // when one that hangs counts as failed
	diskCalm    = 100 * time.Millisecond // how long a reading serves while no disk is near a threshold
)

var errDiskHangs = errors.New("the filesystem does not answer")
var errNoPath = errors.New("the runtime has not told its filesystem yet")

func newDiskReader(nodeRoot string) *diskReader {
	d := &diskReader{
		ask: make(chan struct{}), answers: make(chan diskReading, 1), closed: make(chan struct{}),
		paths: fsPaths{node: nodeRoot},
	}
	go d.run()
	return d
}

func (d *diskReader) run() {
	for {
		select {
		case <-d.closed:
			return
		case <-d.ask:
		}
		d.mu.Lock()
		p := d.paths
		d.mu.Unlock()
		r := diskReading{at: cgroup.BootTime()}
		r.node, r.nodeErr = space(p.node)
		r.image, r.imageErr = space(p.image)
		r.container, r.containerErr = r.image, r.imageErr
		if p.container != "" && p.container != p.image {
			r.container, r.containerErr = space(p.container)
		}
		d.answers <- r
	}
}

// space reads the filesystem that a directory is on, or would be on.
func space(dir string) (cgroup.Space, error) {
	if dir == "" {
		return cgroup.Space{}, errNoPath
	}
	return cgroup.StatfsNearest(dir)
}

// setPaths changes what is watched, when the runtime tells.
func (d *diskReader) setPaths(p fsPaths) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paths = p
}

func (d *diskReader) getPaths() fsPaths {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.paths
}

// refresh gets a fresh reading, waiting a little for it.
func (d *diskReader) refresh(now time.Duration) {
	if d.asked == 0 {
		if d.calm && d.last.at != 0 && now-d.last.at < diskCalm {
			return
		}
		// Or else always afresh: what was read before a reclaim ended would let a pod be
		// stopped for space that is free again.
		select {
		case d.ask <- struct{}{}:
			d.asked = now
		case <-d.closed:
			return
		}
	}
	take := func(r diskReading) {
		d.last, d.asked = r, 0
		d.detect()
	}
	select {
	case r := <-d.answers:
		take(r)
		return
	default:
	}
	if now-d.asked > diskWait {
		return // it hangs: it is not waited for again and again
	}
	wait := time.NewTimer(diskWait)
	defer wait.Stop()
	select {
	case r := <-d.answers:
		take(r)
	case <-wait.C:
	}
}

// observe fills the disk signals in.
func (d *diskReader) observe(obs *policy.Observations, reasons *[policy.SignalCount]error, now time.Duration) {
	d.refresh(now)
	hangs := d.asked != 0 && now-d.asked > diskTooLate
	set := func(bytes, inodes policy.Signal, s cgroup.Space, err error) {
		if hangs {
			err = errDiskHangs
		}
		reasons[bytes], reasons[inodes] = err, err
		switch {
		case d.last.at == 0 && !hangs, errors.Is(err, errNoPath):
			obs[bytes], obs[inodes] = policy.Observation{At: now}, policy.Observation{At: now}
		case err != nil:
			failed := policy.Observation{At: now, Status: policy.Failed}
			obs[bytes], obs[inodes] = failed, failed
		default:
			obs[bytes] = policy.ObserveSpace(s.Available, s.Total, d.last.at)
			obs[inodes] = policy.ObserveSpace(s.InodesFree, s.Inodes, d.last.at)
		}
	}
	r := &d.last
	set(policy.NodeFSAvailable, policy.NodeFSInodesFree, r.node, r.nodeErr)
	set(policy.ImageFSAvailable, policy.ImageFSInodesFree, r.image, r.imageErr)
	set(policy.ContainerFSAvailable, policy.ContainerFSInodesFree, r.container, r.containerErr)
}

// detect finds the layout from the devices, again with every reading: a mount
// that comes late is noticed.
func (d *diskReader) detect() {
	r := &d.last
	if r.nodeErr != nil || r.imageErr != nil || r.containerErr != nil {
		return
	}
	switch {
	case !apart(r.image, r.node):
		d.kind = policy.SingleFS
	case !apart(r.container, r.node):
		d.kind = policy.SplitFS
	default:
		d.kind = policy.DedicatedImageFS
	}
}

func (d *diskReader) layout() policy.Layout { return d.kind }

func (d *diskReader) close() { close(d.closed) }
