package disk

import (
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cgroup/dirtree"
	"github.com/criguard/criguard/cgroup/mountinfo"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// Limits of measuring the pods' disk usage.
const (
	usageFresh     = time.Minute      // how long a measurement is valid, and may run in the background
	podsAtOnce     = 4                // pods measured concurrently by fresh calls, and by all others, not counting slow ones
	slowPod        = time.Second      // after this time a pod counts as slow
	measureTimeout = 10 * time.Second // how long a caller waits: a device may hang, and a tree may be endless

	// SampleTimeout is how long MeasureSince waits for a fresh sample of the writable layers: containerd
	// takes one every 10 s.
	SampleTimeout = 12 * time.Second
	sampleEvery   = 250 * time.Millisecond
)

// LayerSource reports how much a container wrote to its root filesystem.
type LayerSource interface {
	WritableLayer(ctx context.Context, containerID string) (cri.FsUsage, error)
	ExitedLayer(ctx context.Context, containerID string) (cri.FsUsage, error)
}

// Usage is one pod's disk usage, in bytes and in inodes.
type Usage struct {
	Bytes, Inodes policy.DiskUsage
	At            time.Duration // when the measurement began, or, of a lower bound of an earlier one, last counted; since boot
	asked         time.Duration // time of the last request, answered or not
	containers    []string      // containers of that request
}

// MeterOptions configures a Meter.
type MeterOptions struct {
	Source func() (LayerSource, error) // returns the connected runtime
	Logs   string                      // the directory of the pods' logs
	Paths  func() Paths                // directories on the filesystems that the signals cover
	Now    func() time.Duration
	Tree   MeasureTree                        // nil = dirtree.Measure
	Statfs func(string) (cgroup.Space, error) // of the filesystem that holds a path; nil = cgroup.StatfsNearest
	Mounts func() ([]mountinfo.Mount, error)  // of this process; nil = mountinfo.Read
}

// MeasureTree measures the files below a directory, see [dirtree.Measure].
type MeasureTree func(ctx context.Context, dir string, progress func(dirtree.Usage)) (dirtree.Usage, error)

// NewMeter returns a Meter that has not measured anything yet.
func NewMeter(opt MeterOptions) *Meter {
	return &Meter{source: opt.Source, logs: opt.Logs, paths: opt.Paths, now: opt.Now, measureTree: opt.Tree, statfs: opt.Statfs, mounts: opt.Mounts}
}

// Meter measures the pods' disk usage on demand. It walks logs and volumes, and asks the runtime for each container's writable
// layer or, if the runtime's samples are too old, walks that, too. It runs beside the loop, which uses the last good measurement.
type Meter struct {
	source      func() (LayerSource, error)
	logs        string // the pods' logs
	paths       func() Paths
	now         func() time.Duration
	measureTree MeasureTree // nil = dirtree.Measure
	statfs      func(string) (cgroup.Space, error)
	mounts      func() ([]mountinfo.Mount, error)

	mu      sync.Mutex
	last    map[string]Usage       // by sandbox ID
	newest  map[string]*podMeasure // by sandbox ID: the last fresh measurement, which may be in progress
	running map[measureKey]*podMeasure
	hung    map[measureKey]*podMeasure // measurements that hang at the logs or the writable layers
	place   policy.LogsPlace           // of the logs, as last found: a measurement comes to them last
	slots   map[bool]chan struct{}     // podsAtOnce for all fresh measurements, and for all others
}

// measureKey identifies a measurement by pod, and by whether it began with fresh samples of the writable
// layers. Without fresh samples it is too old to choose a victim by.
type measureKey struct {
	sandbox string
	fresh   bool
}

// anyTime is the start time for a measurement that need not be fresh.
const anyTime = time.Duration(math.MinInt64)

// Usage returns a pod's last measured usage, with what a fresh measurement in progress has found so far; false if it is
// missing or too old.
func (d *Meter) Usage(sandbox string) (Usage, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u, ok := d.last[sandbox]
	ok = ok && d.fresh(u.At)
	if j := d.newest[sandbox]; j != nil && d.fresh(j.began) {
		now := Usage{asked: u.asked, containers: u.containers}
		if j.result(&now, j.from); !ok || now.At >= u.At {
			if ok {
				now.keep(&u, j.from)
			}
			return now, true
		}
	}
	return u, ok
}

// Measure measures the pods. A part that cannot be measured in time keeps its last value as a lower bound,
// for as long as that value is valid.
func (d *Meter) Measure(ctx context.Context, pods []inventory.Pod) {
	d.measureFrom(ctx, pods, anyTime, &layers{})
}

// measureFrom measures the pods. The result of a measurement that began before from is a lower bound.
func (d *Meter) measureFrom(ctx context.Context, pods []inventory.Pod, from time.Duration, l *layers) {
	measured := d.ask(ctx, pods, from, l)
	if ctx.Err() != nil {
		return // some pods were not really measured
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// A concurrent measurement of other pods may have ended meanwhile.
	maps.DeleteFunc(d.last, func(_ string, u Usage) bool { return !d.fresh(u.asked) })
	for i := range pods {
		id, u := pods[i].ID, measured[i]
		if old, ok := d.last[id]; ok && from == anyTime && old.At > u.At {
			old.keep(&u, from)
			u = old
		} else if ok && d.fresh(old.At) {
			u.keep(&old, from)
		}
		d.note(id, u)
	}
}

// note records a measurement; d.mu is held.
func (d *Meter) note(sandbox string, u Usage) {
	if d.last == nil {
		d.last = map[string]Usage{}
	}
	d.last[sandbox] = u
}

// ask measures the pods, a few at a time. A slow measurement continues in the background: its result so far
// is a lower bound, and the next call waits for the rest unless it has made no progress.
func (d *Meter) ask(ctx context.Context, pods []inventory.Pod, from time.Duration, l *layers) []Usage {
	within := measureTimeout
	if len(l.unseen) > 0 {
		within += SampleTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	read := d.statfs
	if read == nil {
		read = cgroup.StatfsNearest
	}
	c := call{from: from, layers: l, logsPlace: sync.OnceValue(func() policy.LogsPlace { return d.LogsPlace(read) })}
	slots := d.join(&c)
	jobs := make([]*podMeasure, len(pods))
	for i := range pods {
		key := measureKey{pods[i].ID, from != anyTime}
		if jobs[i] = d.underWay(key, &c); jobs[i] != nil {
			continue
		}
		select {
		case slots <- struct{}{}:
			jobs[i] = d.begin(ctx, key, pods[i], &c, func() { <-slots })
		case <-ctx.Done():
		}
	}
	measured := make([]Usage, len(pods))
	for i, j := range jobs {
		measured[i] = d.unknown(&pods[i])
		if j != nil {
			j.wait(ctx)
			j.result(&measured[i], from)
		}
	}
	return measured
}

// call is what a call measures pods with.
type call struct {
	from      time.Duration
	layers    *layers
	logsPlace func() policy.LogsPlace
	before    map[string]*podMeasure // the newest measurements before it
}

// join prepares a call and returns the slots for its measurements. All fresh calls share one set of slots, and all others another. A
// fresh one also takes over what others measure meanwhile: the reclaims of two pools measure the same pods at once.
func (d *Meter) join(c *call) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.before = maps.Clone(d.newest); d.slots == nil {
		d.slots = map[bool]chan struct{}{false: make(chan struct{}, podsAtOnce), true: make(chan struct{}, podsAtOnce)}
	}
	return d.slots[c.from != anyTime]
}

// takes reports whether another call has begun a pod's newest measurement since, with samples that are new enough if it needs any.
func (c *call) takes(sandbox string, newest *podMeasure) bool {
	return newest != nil && newest != c.before[sandbox] &&
		(len(newest.layers.unseen) == 0 || c.layers.since.Sub(newest.layers.since) <= measureTimeout)
}

// hungAfter is how long a measurement hangs at the logs or at the writable layers until another one takes its place, without them.
// Otherwise, what the pod uses of other filesystems would be out of date soon. One for each key at most is left behind.
const hungAfter = 30 * time.Second

// underWay returns a pod's measurement that another call has begun since this one began, or that an earlier call began and did not see
// end, or nil. If one has ended that began too early, it notes what that has counted since: a tree that takes longer than a call waits
// would otherwise never be known.
func (d *Meter) underWay(key measureKey, c *call) *podMeasure {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.find(key, c)
}

// find does what underWay does. d.mu is held.
func (d *Meter) find(key measureKey, c *call) *podMeasure {
	maps.DeleteFunc(d.hung, func(_ measureKey, j *podMeasure) bool { return j.ended() })
	j, newest := d.running[key], d.newest[key.sandbox]
	switch {
	case j == nil && key.fresh && c.takes(key.sandbox, newest):
		return newest
	case j == nil:
		return nil
	case !j.ended() && (!j.isAtLogs() && !j.isAtLayers() || !j.hangs() || d.hung[key] != nil || d.now()-j.began < hungAfter):
		j.from = max(j.from, c.from)
		return j
	case !j.ended():
		if d.hung == nil {
			d.hung = map[measureKey]*podMeasure{}
		}
		d.hung[key] = j
		delete(d.running, key)
		return nil
	}
	if delete(d.running, key); j.began >= c.from {
		return j
	}
	late := d.last[key.sandbox]
	if j.result(&late, c.from); late.At >= c.from {
		late.asked = d.now()
		d.note(key.sandbox, late)
	}
	return nil
}

// begin starts to measure a pod, unless another call has by now. It frees its slot when it ends, waits or proves slow, so that large
// pods do not block the others.
func (d *Meter) begin(ctx context.Context, key measureKey, p inventory.Pod, c *call, leave func()) *podMeasure {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.find(key, c); j != nil {
		leave()
		return j
	}
	j, l := newPodMeasure(&p, d.now), c.layers
	j.from = c.from
	if d.running == nil {
		d.running = map[measureKey]*podMeasure{}
	}
	maps.DeleteFunc(d.running, func(_ measureKey, o *podMeasure) bool { return o.ended() && !d.fresh(o.began) })
	d.running[key] = j
	if key.fresh {
		if d.newest == nil {
			d.newest = map[string]*podMeasure{}
		}
		maps.DeleteFunc(d.newest, func(_ string, o *podMeasure) bool { return !d.fresh(o.began) })
		d.newest[key.sandbox] = j
	} else if f := d.newest[key.sandbox]; f != nil && d.fresh(f.began) {
		l = &layers{dirs: f.layers.dirs, since: f.layers.since} // an older sample replaces nothing that is fresh
	}
	leave = sync.OnceFunc(leave)
	j.bytes.LogsPlace, j.inodes.LogsPlace = d.place, d.place
	j.layers, j.leave = l, leave
	for k, h := range d.hung {
		switch {
		case k.sandbox != key.sandbox:
		case h.isAtLogs():
			j.noLogs = true
		case h.isAtLayers():
			j.layers = &layers{since: l.since, sampled: l.sampled} // the runtime knows them as well
		}
	}
	slow := time.AfterFunc(slowPod, leave)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usageFresh)
		defer cancel()
		d.pod(ctx, &p, c.logsPlace, j)
		slow.Stop()
		leave()
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.running[key] == j && (!key.fresh || !j.givenUp()) { // otherwise the next call takes the result
			delete(d.running, key)
		}
		close(j.done)
	}()
	return j
}

// Unmeasured reports whether a container's usage was not requested recently. That usage may be anything, so
// largest is then math.MaxInt64.
func (d *Meter) Unmeasured(pods []inventory.Pod) (largest int64, found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range pods {
		u, ok := d.last[pods[i].ID]
		for _, c := range pods[i].Containers {
			if !ok || !d.fresh(u.asked) || !slices.Contains(u.containers, c.ID) {
				return math.MaxInt64, true
			}
		}
	}
	return 0, false
}

func (d *Meter) fresh(at time.Duration) bool { return d.now()-at <= usageFresh }

// MeasureSince measures the pods as they are since then: it walks the writable layers that this process sees. For the others, it
// waits until the runtime has sampled them since, for SampleTimeout at most. With an older sample, the pod that just filled a disk
// looks innocent and another one guilty.
//
// A repeated reclaim follows the previous one at once, so it takes over measurements that began up to
// measureTimeout before since, and those of other calls with samples up to that much older.
func (d *Meter) MeasureSince(ctx context.Context, pods []inventory.Pod, since time.Time) {
	from := d.now() - time.Since(since) - measureTimeout
	l := d.findLayers(pods, since)
	wait, cancel := context.WithTimeout(ctx, SampleTimeout)
	defer cancel()
	l.sampled = sync.OnceValue(func() <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, id := range l.unseen {
				d.awaitSample(wait, id, since)
			}
		}()
		return done
	})
	d.measureFrom(ctx, pods, from, l)
}

// layers is how a measurement learns the size of writable layers.
type layers struct {
	dirs   map[string]string // where they are, by container ID
	unseen []string          // containers whose layers this process does not see
	since  time.Time         // what the runtime sampled before is a lower bound
	// sampled returns a channel that is closed when the runtime has sampled those, or does not in time. CRI-O measures a layer when
	// it is asked, so nothing waits for that. nil = do not wait.
	sampled func() <-chan struct{}
}

// findLayers finds the writable layers of containers: the upper directories of overlay mounts. containerd mounts a container's
// root filesystem at STATE/io.containerd.runtime.v2.task/NAMESPACE/ID/rootfs.
func (d *Meter) findLayers(pods []inventory.Pod, since time.Time) *layers {
	l := &layers{dirs: map[string]string{}, since: since}
	read := d.mounts
	if read == nil {
		read = mountinfo.Read
	}
	all, _ := read() // without them, the runtime's samples are waited for
	for i := range all {
		if m := &all[i]; m.Type == "overlay" && filepath.Base(m.Point) == "rootfs" {
			if upper := upperDir(m.Options); upper != "" {
				l.dirs[filepath.Base(filepath.Dir(m.Point))] = upper
			}
		}
	}
	for i := range pods {
		for j := range pods[i].Containers {
			id := pods[i].Containers[j].ID
			if dir, ok := l.dirs[id]; !ok || !isDir(dir) {
				delete(l.dirs, id)
				l.unseen = append(l.unseen, id)
			}
		}
	}
	return l
}

// upperDir returns the upper directory of an overlay; "" if it has none, or one with an escaped name.
func upperDir(options []string) string {
	for _, o := range options {
		if dir, ok := strings.CutPrefix(o, "upperdir="); ok && filepath.IsAbs(dir) && !strings.Contains(dir, `\`) {
			return strings.Clone(dir) // the line has kilobytes of lower directories, and measurements are kept
		}
	}
	return ""
}

// isDir reports whether a path is a directory here: within a pod, only some directories of the node are mounted.
func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// awaitSample waits for a recent sample of one container's writable layer. It returns at once if the runtime
// reports an error.
func (d *Meter) awaitSample(ctx context.Context, id string, since time.Time) {
	for ctx.Err() == nil {
		src, err := d.source()
		if err != nil {
			return
		}
		if u, err := src.WritableLayer(ctx, id); err != nil || u.Known && !u.At.Before(since) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(sampleEvery):
		}
	}
}

// unknown returns the usage of a pod that was requested and has not been measured yet.
func (d *Meter) unknown(p *inventory.Pod) Usage {
	now := d.now()
	u := Usage{At: now, asked: now}
	d.mu.Lock()
	defer d.mu.Unlock()
	u.Bytes.LogsPlace, u.Inodes.LogsPlace = d.place, d.place
	for i := range p.Containers {
		u.containers = append(u.containers, p.Containers[i].ID)
	}
	return u
}

// LogsPlace finds the device of the pods' logs. One that cannot be read counts as that of nodefs. If nodefs cannot be read, they are
// on it unless they are on another one.
func (d *Meter) LogsPlace(read func(dir string) (cgroup.Space, error)) (p policy.LogsPlace) {
	logs, err := read(d.logs)
	if err != nil {
		return p
	}
	node, err := read(d.paths().Node)
	p.LogsApart = err == nil && Apart(logs, node)
	if err == nil && !p.LogsApart {
		return p
	}
	for _, s := range []policy.Signal{policy.ContainerFSAvailable, policy.ImageFSAvailable} {
		dir := d.paths().Of(s)
		if dir == "" {
			continue
		}
		if space, err := read(dir); err == nil && !Apart(logs, space) {
			return policy.LogsPlace{LogsApart: true, LogsWith: s}
		}
	}
	return p
}

// Apart reports whether two filesystems share no space. A btrfs subvolume has its own device number, but the
// pool and total size of the whole filesystem, and no inode count.
func Apart(a, b cgroup.Space) bool {
	return a.Device != b.Device && (a.Total != b.Total || a.Pool != b.Pool || a.Inodes > 0)
}
