package disk

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cgroup/dirtree"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// podMeasure is one measurement of one pod. It may run longer than its caller waits.
type podMeasure struct {
	done       chan struct{}
	now        func() time.Duration
	began      time.Duration
	from       time.Duration // what the last call asked for, see Meter.measureFrom; guarded by the Meter
	layers     *layers
	leave      func()   // lets the next measurement begin
	noLogs     bool     // it leaves the logs out
	containers []string // IDs of the measured containers

	mu            sync.Mutex
	bytes, inodes policy.DiskUsage // so far
	atLogs        bool             // only the logs are left
	volumes       bool             // the volumes have been walked
	dirs          bool             // so have the writable layers
	counted       time.Duration    // when a part was last set
	steps, seen   int              // steps counts the updates; seen is its value when a caller last timed out
}

func newPodMeasure(p *inventory.Pod, now func() time.Duration) *podMeasure {
	j := &podMeasure{done: make(chan struct{}), now: now, began: now(), seen: -1, layers: &layers{}, leave: func() {}}
	for i := range p.Containers {
		j.containers = append(j.containers, p.Containers[i].ID)
	}
	return j
}

// set records the usage of one part of the pod.
func (j *podMeasure) set(part func(*policy.DiskUsage) *policy.Measured, u amounts) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.steps++
	j.counted = j.now()
	*part(&j.bytes), *part(&j.inodes) = u.bytes, u.inodes
}

// reach notes that the measurement has come to a step.
func (j *podMeasure) reach(step *bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	*step = true
}

func rootfsOf(u *policy.DiskUsage) *policy.Measured  { return &u.Rootfs }
func logsOf(u *policy.DiskUsage) *policy.Measured    { return &u.Logs }
func volumesOf(u *policy.DiskUsage) *policy.Measured { return &u.Volumes }

// wait waits until the pod is measured or ctx ends. It does not wait again for a measurement that has made
// no progress since.
func (j *podMeasure) wait(ctx context.Context) {
	if j.hangs() {
		return
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		j.mu.Lock()
		defer j.mu.Unlock()
		j.seen = j.steps
	}
}

func (j *podMeasure) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// givenUp reports whether a caller has timed out waiting for the measurement.
func (j *podMeasure) givenUp() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen >= 0
}

func (j *podMeasure) hangs() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seen == j.steps
}

// isAtLogs reports whether it has measured all but the logs.
func (j *podMeasure) isAtLogs() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.atLogs
}

// isAtLayers reports whether it has walked all but the writable layers, so that only these can hang.
func (j *podMeasure) isAtLayers() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.volumes && !j.dirs
}

// result fills in the usage measured so far. That of a measurement which began before from is a lower bound of what the pod used when
// it last counted something. If a container is newer than the measurement, the root filesystem part is one, too.
func (j *podMeasure) result(u *Usage, from time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	u.Bytes, u.Inodes, u.At = j.bytes, j.inodes, j.began
	if j.began < from {
		u.lower()
		u.At = max(j.began, j.counted)
	}
	for _, id := range u.containers {
		if !slices.Contains(j.containers, id) {
			u.Bytes.Rootfs = u.Bytes.Rootfs.Plus(policy.Measured{})
			u.Inodes.Rootfs = u.Inodes.Rootfs.Plus(policy.Measured{})
			return
		}
	}
}

// parts returns the measured parts of the usage.
func (u *Usage) parts() []*policy.Measured {
	return []*policy.Measured{
		&u.Bytes.Rootfs, &u.Bytes.Logs, &u.Bytes.Volumes, &u.Inodes.Rootfs, &u.Inodes.Logs, &u.Inodes.Volumes,
	}
}

// lower turns every measured part into a lower bound.
func (u *Usage) lower() {
	for _, part := range u.parts() {
		if part.Quality != policy.QualityUnknown {
			*part = policy.AtLeast(part.Value)
		}
	}
}

// keep replaces the parts that are unknown, or known in part and smaller, with those of an earlier measurement, as lower bounds.
// It keeps nothing from before a time: an older part would make the whole usage too old for a stop.
func (u *Usage) keep(old *Usage, from time.Duration) {
	if old.At < from {
		return
	}
	before := old.parts()
	for i, now := range u.parts() {
		known := before[i].Quality != policy.QualityUnknown
		if known && (now.Quality == policy.QualityUnknown || now.Quality == policy.QualityAtLeast && now.Value < before[i].Value) {
			*now, u.At = policy.AtLeast(before[i].Value), min(u.At, old.At)
		}
	}
}

// amounts is a usage in bytes and inodes.
type amounts struct{ bytes, inodes policy.Measured }

func exactly(bytes, inodes int64) amounts {
	return amounts{policy.Exactly(bytes), policy.Exactly(inodes)}
}

func (a amounts) plus(b amounts) amounts {
	return amounts{a.bytes.Plus(b.bytes), a.inodes.Plus(b.inodes)}
}

// pod measures a pod part by part. Volumes and writable layers may be on different devices, so neither waits for the other. The
// logs come last: if their filesystem hangs, the usage of other filesystems is still known.
func (d *Meter) pod(ctx context.Context, p *inventory.Pod, logsPlace func() policy.LogsPlace, j *podMeasure) {
	walked := make(chan struct{})
	go func() {
		defer close(walked)
		volumes, dir := exactly(0, 0), filepath.Join(d.paths().Node, "pods", p.UID)
		for _, name := range podFiles {
			volumes = d.tree(ctx, j, volumesOf, volumes, filepath.Join(dir, name))
		}
		j.set(volumesOf, volumes)
		j.reach(&j.volumes)
	}()
	rootfs := d.rootfs(ctx, p, j, walked)
	<-walked
	if j.noLogs {
		return
	}
	j.reach(&j.atLogs)
	place := logsPlace()
	d.mu.Lock()
	d.place = place
	d.mu.Unlock()
	j.mu.Lock()
	j.bytes.LogsPlace, j.inodes.LogsPlace = place, place
	j.mu.Unlock()
	logDir := filepath.Join(d.logs, p.LogDirName())
	logs := d.tree(ctx, j, logsOf, exactly(0, 0), logDir)
	for i := range p.Containers {
		if sameDevice, elsewhere := linkedLog(logDir, &p.Containers[i]); sameDevice {
			logs = logs.plus(elsewhere)
		} else {
			rootfs = rootfs.plus(elsewhere)
		}
	}
	j.set(logsOf, logs)
	j.set(rootfsOf, rootfs)
}

// rootfs measures the writable layers of a pod's containers. walked is closed when its volumes have been walked.
func (d *Meter) rootfs(ctx context.Context, p *inventory.Pod, j *podMeasure, walked <-chan struct{}) amounts {
	sum := exactly(0, 0)
	for i := range p.Containers {
		if dir, seen := j.layers.dirs[p.Containers[i].ID]; seen {
			sum = d.tree(ctx, j, rootfsOf, sum, dir)
		}
	}
	j.reach(&j.dirs)
	for i := range p.Containers {
		if _, seen := j.layers.dirs[p.Containers[i].ID]; !seen {
			u := d.layer(ctx, p.Containers[i].ID, j.layers.since)
			if j.layers.sampled != nil && u.bytes.Quality != policy.QualityExact {
				j.set(rootfsOf, sum.plus(u).plus(amounts{}))
				j.awaitSamples(ctx, walked)
				u = d.layer(ctx, p.Containers[i].ID, j.layers.since)
			}
			sum = sum.plus(u)
		}
	}
	if len(p.Ended) > 0 {
		j.set(rootfsOf, sum.plus(amounts{}))
		sum = sum.plus(d.exitedLayers(ctx, p.Ended))
	}
	j.set(rootfsOf, sum)
	return sum
}

// awaitSamples waits for the runtime's samples. When nothing is walked any more, it lets other pods be measured meanwhile.
func (j *podMeasure) awaitSamples(ctx context.Context, walked <-chan struct{}) {
	sampled := j.layers.sampled()
	select {
	case <-sampled:
		return
	case <-walked:
		j.leave()
	}
	select {
	case <-sampled:
	case <-ctx.Done():
	}
}

// tree adds the usage of a directory tree to sum. What it has counted is known as a lower bound, until the caller sets the part.
func (d *Meter) tree(ctx context.Context, j *podMeasure, part func(*policy.DiskUsage) *policy.Measured, sum amounts, dir string) amounts {
	soFar := func(u dirtree.Usage) {
		j.set(part, sum.plus(amounts{policy.AtLeast(u.Bytes), policy.AtLeast(u.Inodes)}))
	}
	measure := d.measureTree
	if measure == nil {
		measure = dirtree.Measure
	}
	u, err := measure(ctx, dir, soFar)
	switch {
	case err != nil:
		sum = sum.plus(amounts{})
	case u.Partial:
		sum = sum.plus(amounts{policy.AtLeast(u.Bytes), policy.AtLeast(u.Inodes)})
	default:
		sum = sum.plus(exactly(u.Bytes, u.Inodes))
	}
	j.set(part, sum.plus(amounts{}))
	return sum
}

// podFiles are what a pod may write to in its directory below the kubelet's: the volumes that a kubelet counts as a pod's local usage,
// and the files that it mounts into every container at /etc/hosts and /dev/termination-log, which no limit holds (CVE-2020-8557).
// Persistent volumes may be on the same device, but they outlive the pod.
var podFiles = []string{
	"volumes/kubernetes.io~empty-dir", "volumes/kubernetes.io~configmap", "volumes/kubernetes.io~git-repo", "etc-hosts", "containers",
}

// layer returns the size of a container's writable layer as the runtime reports it, as a lower bound if it sampled it
// before since. Docker reports no inodes.
func (d *Meter) layer(ctx context.Context, id string, since time.Time) amounts {
	src, err := d.source()
	if err != nil {
		return amounts{}
	}
	u, err := src.WritableLayer(ctx, id)
	if errors.Is(err, cri.ErrGone) {
		return exactly(0, 0)
	}
	if err != nil {
		return amounts{}
	}
	if u.At.Before(since) {
		return amounts{policy.AtLeast(u.UsedBytes), policy.AtLeast(u.InodesUsed)}
	}
	return amounts{policy.Amount{Value: u.UsedBytes, Known: u.Known}.Measured(), policy.Amount{Value: u.InodesUsed, Known: u.InodesKnown}.Measured()}
}

// exitedLayers returns the size of exited containers' writable layers: what they wrote stays until they are removed, and a stop
// for a disk removes them. One whose size the runtime does not report counts as empty, so that it holds no stop back. They write
// no more, so an old sample is good enough.
func (d *Meter) exitedLayers(ctx context.Context, ids []string) amounts {
	sum := exactly(0, 0)
	src, err := d.source()
	if err != nil {
		return sum
	}
	for _, id := range ids {
		u, err := src.ExitedLayer(ctx, id)
		if errors.Is(err, cri.ErrTimeout) {
			break
		}
		if err == nil && u.Known {
			sum = sum.plus(exactly(u.UsedBytes, u.InodesUsed))
		}
	}
	return sum
}

// linkedLog measures Docker's own log, which cri-dockerd links to <pod>/<container>/<attempt>.log. Docker
// deletes it with the container. If it is not on the logs' device, it is on the layers' device, because both
// are in Docker's data root.
func linkedLog(podDir string, c *inventory.Container) (withLogs bool, u amounts) {
	if c.LogPath == "" || filepath.Dir(filepath.Dir(c.LogPath)) != podDir {
		return true, exactly(0, 0)
	}
	l, ok, err := dirtree.ReadLogLink(c.LogPath)
	switch {
	case err != nil:
		return true, amounts{}
	case !ok || filepath.Base(l.Target) != c.ID+"-json.log": // another pod's log, or not a log
		return true, exactly(0, 0)
	}
	return l.SameDevice, exactly(l.Bytes, 1)
}
