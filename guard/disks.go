package guard

import (
	"errors"
	"sync"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// diskReader reads each filesystem in a goroutine of its own, so that a device that
// hangs never holds the loop up: its signals turn failed, the others go on.
type diskReader struct {
	read    func(dir string) (cgroup.Space, error)
	answers chan fsReading
	closed  chan struct{}

	mu     sync.Mutex
	paths  fsPaths
	probes map[string]int // under way, by path

	// readers are by path. One that hangs stays until it answers, though its path be
	// watched no more: so a path that comes and goes costs one goroutine at most.
	readers map[string]*fsReader
	kind    policy.Layout
	// detected: the layout of these paths was seen.
	detected bool
	seen     fsPaths
	// calm: no filesystem is near a threshold. What was read a moment ago will do then:
	// near one of memory there is a pass every 5 ms.
	calm bool
}

// fsPaths are directories on the filesystems to watch; "" = not known yet.
type fsPaths struct{ node, image, container string }

// layers is where the writable layers are: with the images, unless the runtime names another.
func (p fsPaths) layers() string { return defaultString(p.container, p.image) }

// of is the directory that a disk signal is about; "" where that is not known.
func (p fsPaths) of(s policy.Signal) string {
	switch s {
	case policy.NodeFSAvailable, policy.NodeFSInodesFree:
		return p.node
	case policy.ImageFSAvailable, policy.ImageFSInodesFree:
		return p.image
	default:
		return p.layers()
	}
}

// fsReader reads the filesystem of one path.
type fsReader struct {
	path  string
	ask   chan time.Duration // never full: one that is asked is not asked again
	last  fsReading
	asked time.Duration // when the reading under way was asked for; 0 = none is
}

// fsReading is what was read of one filesystem, no earlier than when it was asked for.
type fsReading struct {
	of    *fsReader
	at    time.Duration // 0 = nothing was read yet
	space cgroup.Space
	err   error
}

const (
	diskWait    = 50 * time.Millisecond  // how long a pass waits for all of them
	diskTooLate = 2 * time.Second        // when one that hangs counts as failed
	diskCalm    = 100 * time.Millisecond // how long a reading serves while no disk is near a threshold
)

var errDiskHangs = errors.New("the filesystem does not answer")
var errNoPath = errors.New("the runtime has not told its filesystem yet")
var errNoLayout = errors.New("which filesystems share a device is not known yet")

func newDiskReader(nodeRoot string) *diskReader {
	return &diskReader{
		read: space, answers: make(chan fsReading), closed: make(chan struct{}),
		paths: fsPaths{node: nodeRoot}, readers: map[string]*fsReader{}, probes: map[string]int{},
	}
}

// run answers for one filesystem until nobody asks any more.
func (d *diskReader) run(f *fsReader) {
	for {
		r := fsReading{of: f}
		var more bool
		select {
		case <-d.closed:
			return
		case r.at, more = <-f.ask:
			if !more {
				return
			}
		}
		r.space, r.err = d.read(f.path)
		select {
		case <-d.closed:
			return
		case d.answers <- r:
		}
	}
}

// space reads the filesystem that a directory is on, or would be on.
func space(dir string) (cgroup.Space, error) {
	if dir == "" {
		return cgroup.Space{}, errNoPath
	}
	return cgroup.StatfsNearest(dir)
}

// probesAtMost bounds the goroutines that a filesystem that hangs takes.
const probesAtMost = 4

// probe reads a filesystem now, for who can wait a little but not for ever: a reclaim that waits for
// a dead mount would keep those of all disks waiting.
func (d *diskReader) probe(dir string) (cgroup.Space, error) {
	count := func(n int) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.probes[dir]+n > probesAtMost {
			return false
		}
		d.probes[dir] += n
		return true
	}
	if !count(1) {
		return cgroup.Space{}, errDiskHangs
	}
	answer := make(chan fsReading, 1)
	go func() {
		var r fsReading
		r.space, r.err = d.read(dir)
		count(-1)
		answer <- r
	}()
	late := time.NewTimer(diskTooLate)
	defer late.Stop()
	select {
	case r := <-answer:
		return r.space, r.err
	case <-late.C:
		return cgroup.Space{}, errDiskHangs
	}
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

// follow has a reader for each path that is watched, and no other but those that hang.
func (d *diskReader) follow(p fsPaths) {
	for _, path := range []string{p.node, p.image, p.container} {
		if path == "" || d.readers[path] != nil {
			continue
		}
		f := &fsReader{path: path, ask: make(chan time.Duration, 1)}
		d.readers[path] = f
		go d.run(f)
	}
	for path, f := range d.readers {
		if path != p.node && path != p.image && path != p.container && f.asked == 0 {
			close(f.ask)
			delete(d.readers, path)
		}
	}
}

// refresh gets fresh readings, waiting a little for them.
func (d *diskReader) refresh(p fsPaths, now time.Duration) {
	d.follow(p)
	for _, f := range d.readers {
		// Or else always afresh: what was read before a reclaim ended would let a pod be
		// stopped for space that is free again.
		serves := d.calm && f.last.at != 0 && now-f.last.at < diskCalm
		if f.asked == 0 && !serves {
			f.asked = now
			f.ask <- now
		}
	}
	d.takeAll()
	if !d.awaited(now) {
		return
	}
	wait := time.NewTimer(diskWait)
	defer wait.Stop()
	for d.awaited(now) {
		select {
		case r := <-d.answers:
			take(r)
		case <-wait.C:
			return
		case <-d.closed:
			return
		}
	}
}

// takeAll takes in what has come, also of those that were given up on.
func (d *diskReader) takeAll() {
	for {
		select {
		case r := <-d.answers:
			take(r)
		default:
			return
		}
	}
}

func take(r fsReading) { r.of.last, r.of.asked = r, 0 }

// awaited reports whether an answer is worth to wait for: one that hangs is not waited for
// again and again.
func (d *diskReader) awaited(now time.Duration) bool {
	for _, f := range d.readers {
		if f.asked != 0 && now-f.asked <= diskWait {
			return true
		}
	}
	return false
}

// observe fills the disk signals in.
func (d *diskReader) observe(obs *policy.Observations, reasons *[policy.SignalCount]error, now time.Duration) {
	p := d.getPaths()
	d.refresh(p, now)
	if p != d.seen {
		d.seen, d.detected = p, false
	}
	set := func(bytes, inodes policy.Signal) (r fsReading) {
		o, in := policy.Observation{At: now}, policy.Observation{At: now} // absent
		r.err = errNoPath
		if f := d.readers[p.of(bytes)]; f != nil {
			r = f.last
			if f.asked != 0 && now-f.asked > diskTooLate {
				r.err = errDiskHangs
			}
			switch {
			case r.err != nil:
				o.Status, in.Status = policy.Failed, policy.Failed
			case r.at != 0:
				o = policy.ObserveSpace(r.space.Available, r.space.Total, r.at)
				in = policy.ObserveSpace(r.space.InodesFree, r.space.Inodes, r.at)
			}
		}
		obs[bytes], obs[inodes] = o, in
		reasons[bytes], reasons[inodes] = r.err, r.err
		return r
	}
	node := set(policy.NodeFSAvailable, policy.NodeFSInodesFree)
	image := set(policy.ImageFSAvailable, policy.ImageFSInodesFree)
	container := set(policy.ContainerFSAvailable, policy.ContainerFSInodesFree)
	d.detect(node, image, container)
	if !d.isSettled(p) && node.err == nil {
		// Whether what fills nodefs is with the images or not: who is stopped for it depends on that.
		for _, s := range []policy.Signal{policy.NodeFSAvailable, policy.NodeFSInodesFree} {
			obs[s], reasons[s] = policy.Observation{At: now}, errNoLayout
		}
	}
}

// isSettled tells whether it is known which filesystems share a device, or the runtime has not
// told its own. It is two seconds after it has, at the latest.
func (d *diskReader) isSettled(p fsPaths) bool { return d.detected || p.image == "" }

// detect finds the layout from the devices, again with every look: a mount that comes late
// is noticed. Before each has answered, and while one cannot be read, it is as it was; but one that
// hangs or fails from the start where nodefs answers is another one.
func (d *diskReader) detect(node, image, container fsReading) {
	known := node.err == nil && node.at != 0
	isApart := func(r fsReading) bool {
		if !d.detected && r.err != nil && !errors.Is(r.err, errNoPath) {
			return true
		}
		known = known && r.err == nil && r.at != 0
		return apart(r.space, node.space)
	}
	imageApart, layersApart := isApart(image), isApart(container)
	if !known {
		return
	}
	d.detected = true
	switch {
	case !imageApart:
		d.kind = policy.SingleFS
	case !layersApart:
		d.kind = policy.SplitFS
	default:
		d.kind = policy.DedicatedImageFS
	}
}

func (d *diskReader) layout() policy.Layout { return d.kind }

func (d *diskReader) close() { close(d.closed) }
