package disk

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// Watcher reads each filesystem in its own goroutine, so that a hung device never blocks the loop: its
// signals fail, and the others are still read.
type Watcher struct {
	read    func(dir string) (cgroup.Space, error)
	commit  func(dir string) error
	answers chan fsReading
	closed  chan struct{}

	mu     sync.Mutex
	paths  Paths
	probes map[string]int // reads in progress, by path
	// commits is when the last commit ended, by path. Of one that is under way, it is in the future.
	commits map[string]time.Time

	// readers are by path. A reader that hangs stays until it answers, even if its path is no longer
	// watched, so removing and adding a path repeatedly costs at most one goroutine.
	readers map[string]*fsReader
	kind    policy.Layout
	// inMemory says that writable layers are on a filesystem in memory.
	inMemory bool
	// detected reports whether the layout of the current paths is known.
	detected bool
	seen     Paths
	maxAge   atomic.Int64 // see SetMaxAge
}

// Paths are directories on the filesystems to watch; "" = not known yet.
type Paths struct {
	Node      string // the kubelet's root directory, which holds the pods' volumes
	Image     string
	Container string
}

// layers returns the directory of the writable layers: the image directory, unless the runtime reports
// another one.
func (p Paths) layers() string { return cmp.Or(p.Container, p.Image) }

// Of returns the directory whose filesystem a disk signal measures; "" if it is not known yet.
func (p Paths) Of(s policy.Signal) string {
	switch s {
	case policy.NodeFSAvailable, policy.NodeFSInodesFree:
		return p.Node
	case policy.ImageFSAvailable, policy.ImageFSInodesFree:
		return p.Image
	default:
		return p.layers()
	}
}

// fsReader reads the filesystem of one path.
type fsReader struct {
	path  string
	ask   chan time.Duration // never full: a reader with a request in progress gets no other
	last  fsReading
	asked time.Duration // when the read in progress was requested; 0 = no read in progress
}

// fsReading is one reading of a filesystem, no older than its request.
type fsReading struct {
	of    *fsReader
	at    time.Duration // time of the request; 0 = not read yet
	space cgroup.Space
	err   error
}

const (
	// ReadTimeout is how long a pass waits for all filesystems together.
	ReadTimeout = 50 * time.Millisecond
	// HangTimeout is how long a read may take before the filesystem's signals fail.
	HangTimeout = 2 * time.Second
)

// Errors of a filesystem's signals.
var (
	// ErrHangs reports that the filesystem does not answer within HangTimeout.
	ErrHangs = errors.New("the filesystem does not answer")
	// ErrNoPath reports that the runtime has not reported its filesystem yet.
	ErrNoPath = errors.New("the runtime has not reported its filesystem yet")
	// ErrUnread reports that the first read of the filesystem has not ended yet.
	ErrUnread = errors.New("the filesystem has not answered yet")
	// ErrNoLayout reports that it is not known yet which filesystems share a device.
	ErrNoLayout = errors.New("which filesystems share a device is not known yet")
)

// NewWatcher returns a watcher of the filesystem that holds the kubelet's root directory. read reads the filesystem that
// holds a directory; nil = Statfs.
func NewWatcher(nodeRoot string, read func(dir string) (cgroup.Space, error)) *Watcher {
	if read == nil {
		read = Statfs
	}
	return &Watcher{
		read: read, commit: cgroup.StartCommit, answers: make(chan fsReading), closed: make(chan struct{}),
		paths: Paths{Node: nodeRoot}, readers: map[string]*fsReader{}, probes: map[string]int{}, commits: map[string]time.Time{},
	}
}

// run reads one filesystem on each request, until the requests or the watcher are closed.
func (d *Watcher) run(f *fsReader) {
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
		if r.space, r.err = d.read(f.path); d.MaxAge() == 0 {
			d.free(f.path, &r.space)
		}
		select {
		case <-d.closed:
			return
		case d.answers <- r:
		}
	}
}

// Statfs reads the filesystem that holds a directory, or would hold it if it existed.
func Statfs(dir string) (cgroup.Space, error) {
	if dir == "" {
		return cgroup.Space{}, ErrNoPath
	}
	return cgroup.StatfsNearest(dir)
}

// probesAtMost limits the goroutines that reads of one hung filesystem can block.
const probesAtMost = 4

// Read reads a filesystem now and waits up to HangTimeout. Reclaim uses it: if it waited for a dead mount
// without a limit, reclaim on all disks would wait too.
func (d *Watcher) Read(dir string) (cgroup.Space, error) {
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
		return cgroup.Space{}, ErrHangs
	}
	answer := make(chan fsReading, 1)
	go func() {
		var r fsReading
		r.space, r.err = d.read(dir)
		count(-1)
		answer <- r
	}()
	late := time.NewTimer(HangTimeout)
	defer late.Stop()
	select {
	case r := <-answer:
		d.free(dir, &r.space)
		return r.space, r.err
	case <-late.C:
		return cgroup.Space{}, ErrHangs
	}
}

// SetMaxAge sets how old a reading may be for Observe not to wait for another one. 0 = it always reads again: near a
// threshold, a reading from before the end of a reclaim could get a pod stopped for space that is free again.
func (d *Watcher) SetMaxAge(age time.Duration) { d.maxAge.Store(int64(age)) }

// MaxAge returns what SetMaxAge was called with last.
func (d *Watcher) MaxAge() time.Duration { return time.Duration(d.maxAge.Load()) }

// commitEvery is the least pause between two commits of a filesystem. Each is a write.
const commitEvery = time.Second

// free lets a filesystem free what was deleted on it, if only a commit does that. It does not wait for it.
func (d *Watcher) free(dir string, s *cgroup.Space) {
	if !s.ByCommit {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Since(d.commits[dir]) < commitEvery {
		return
	}
	d.commits[dir] = time.Now().Add(endless)
	go func() {
		_ = d.commit(dir) // the filesystem's own commit comes later
		d.mu.Lock()
		defer d.mu.Unlock()
		d.commits[dir] = time.Now()
	}()
}

// endless is longer than any commit that ends.
const endless = 1000 * time.Hour

// UpdatePaths changes the watched paths, once more is known.
func (d *Watcher) UpdatePaths(change func(*Paths)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.paths)
}

// Paths returns the watched paths.
func (d *Watcher) Paths() Paths {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.paths
}

// follow starts a reader for each watched path and stops all other readers except those that hang.
func (d *Watcher) follow(p Paths) {
	for _, path := range []string{p.Node, p.Image, p.Container} {
		if path == "" || d.readers[path] != nil {
			continue
		}
		f := &fsReader{path: path, ask: make(chan time.Duration, 1)}
		d.readers[path] = f
		go d.run(f)
	}
	for path, f := range d.readers {
		if path != p.Node && path != p.Image && path != p.Container && f.asked == 0 {
			close(f.ask)
			delete(d.readers, path)
		}
	}
}

// askAhead is how long before a reading is too old the next one is due at most: the longest pause between two passes.
const askAhead = time.Second

// refresh requests the readings that are due, and waits up to ReadTimeout for those without which the last ones are too old.
// They are due earlier, so that far from every threshold the next pass finds them, and none waits for a disk.
func (d *Watcher) refresh(p Paths, now time.Duration) {
	d.takeAll()
	d.follow(p)
	early := max(d.MaxAge()-askAhead, d.MaxAge()/2)
	for _, f := range d.readers {
		if f.asked == 0 && !f.last.serves(now, early) {
			f.asked = now
			f.ask <- now
		}
	}
	if !d.awaited(now) {
		return
	}
	wait := time.NewTimer(ReadTimeout)
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

// serves reports whether a reading is younger than an age.
func (r *fsReading) serves(now, age time.Duration) bool { return r.at != 0 && now-r.at < age }

// takeAll stores all pending answers, including late ones.
func (d *Watcher) takeAll() {
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

// awaited reports whether an answer is worth waiting for: the last reading is too old. A filesystem that hangs is waited for
// only once.
func (d *Watcher) awaited(now time.Duration) bool {
	for _, f := range d.readers {
		if f.asked != 0 && now-f.asked <= ReadTimeout && !f.last.serves(now, d.MaxAge()) {
			return true
		}
	}
	return false
}

// Observe fills in the disk signals, and the reason for each one that has no value.
func (d *Watcher) Observe(obs *policy.Observations, reasons *[policy.SignalCount]error, now time.Duration) {
	p := d.Paths()
	d.refresh(p, now)
	if p != d.seen {
		d.seen, d.detected = p, false
	}
	set := func(bytes, inodes policy.Signal) (r fsReading) {
		o, in := policy.Observation{At: now}, policy.Observation{At: now} // both are absent
		r.err = ErrNoPath
		if f := d.readers[p.Of(bytes)]; f != nil {
			r = f.last
			if f.asked != 0 && now-f.asked > HangTimeout {
				r.err = ErrHangs
			}
			switch {
			case r.err != nil:
				o.Status, in.Status = policy.Failed, policy.Failed
			case r.at != 0:
				o = policy.ObserveSpace(r.space.Available, r.space.Total, r.at)
				o.Reserved = r.space.Reserved
				in = policy.ObserveSpace(r.space.InodesFree, r.space.Inodes, r.at)
			}
		}
		why := r.err
		if why == nil && r.at == 0 {
			why = ErrUnread
		}
		obs[bytes], obs[inodes] = o, in
		reasons[bytes], reasons[inodes] = why, why
		return r
	}
	node := set(policy.NodeFSAvailable, policy.NodeFSInodesFree)
	image := set(policy.ImageFSAvailable, policy.ImageFSInodesFree)
	container := set(policy.ContainerFSAvailable, policy.ContainerFSInodesFree)
	d.detect(node, image, container)
	if container.err == nil && container.at != 0 {
		d.inMemory = container.space.InMemory
	}
	if !d.isSettled(p) && node.err == nil {
		// The victim depends on whether nodefs is also the images' filesystem.
		for _, s := range []policy.Signal{policy.NodeFSAvailable, policy.NodeFSInodesFree} {
			obs[s], reasons[s] = policy.Observation{At: now}, ErrNoLayout
		}
	}
}

// Settled reports whether the layout is known, or the runtime has not reported its filesystem yet. The
// layout is known within two seconds after that report.
func (d *Watcher) Settled() bool { return d.isSettled(d.Paths()) }

func (d *Watcher) isSettled(p Paths) bool { return d.detected || p.Image == "" }

// detect derives the layout from the devices at each observation, so that it notices a late mount. It keeps
// the previous layout until each filesystem has answered and while one cannot be read. A filesystem that
// hangs or fails from the start, while nodefs answers, counts as a separate one.
func (d *Watcher) detect(node, image, container fsReading) {
	known := node.err == nil && node.at != 0
	isApart := func(r fsReading) bool {
		if !d.detected && r.err != nil && !errors.Is(r.err, ErrNoPath) {
			return true
		}
		known = known && r.err == nil && r.at != 0
		return Apart(r.space, node.space)
	}
	imageApart, layersApart := isApart(image), isApart(container)
	if !known {
		return
	}
	d.detected = true
	switch {
	case !imageApart && !layersApart:
		d.kind = policy.SingleFS
	case !imageApart:
		d.kind = policy.DedicatedContainerFS
	case !layersApart:
		d.kind = policy.SplitFS
	case image.err == nil && container.err == nil && Apart(container.space, image.space):
		d.kind = policy.SeparateFS
	default:
		d.kind = policy.DedicatedImageFS
	}
}

// Layout returns the last known layout: which filesystems share a device.
func (d *Watcher) Layout() policy.Layout { return d.kind }

// LayersInMemory reports whether the writable layers were last seen on a filesystem in memory.
func (d *Watcher) LayersInMemory() bool { return d.inMemory }

// Close stops all readers.
func (d *Watcher) Close() { close(d.closed) }
