package guard

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
)

// Bounds of measuring what pods use of the disks.
const (
	diskUseFresh   = time.Minute // how long a measurement counts
	diskAtOnce     = 4           // pods measured at a time
	diskMaxEntries = 200_000     // files looked at per pod; what has more is unknown beyond
	diskMeasure    = time.Minute // how long one measurement may take: a device or a mount may hang

	// sampleWait is how long a fresh sample of what a container wrote is waited for:
	// containerd takes one every 10 s.
	sampleWait  = 12 * time.Second
	sampleEvery = 250 * time.Millisecond
)

// layerSource tells what a container wrote into its root filesystem.
type layerSource interface {
	WritableLayer(ctx context.Context, containerID string) (cri.FsUsage, error)
}

// diskUse is what one pod uses of the disks, in bytes and in inodes.
type diskUse struct {
	bytes, inodes policy.DiskUsage
	at            time.Duration // when that was so
	asked         time.Duration // when it was asked for last, whether or not there was an answer
	containers    []string      // of which it was asked
}

// diskMeter measures what pods use of the disks, on demand: writable layers by
// asking the runtime for each container by itself, logs and volumes by walking
// them. It runs beside the loop, which reads the last good measurement.
type diskMeter struct {
	source func() (layerSource, error)
	root   string // of the kubelet: its pods' volumes are below
	logs   string // of the pods' logs
	now    func() time.Duration

	mu    sync.Mutex
	last  map[string]diskUse // by sandbox ID
	hangs map[string]bool    // sandboxes that could not be measured in time and still are being measured
}

// usage is what a pod used when it was measured last, if that is recent enough.
func (d *diskMeter) usage(sandbox string) (diskUse, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u, ok := d.last[sandbox]
	return u, ok && d.fresh(u.at)
}

// measure measures the pods. One that cannot be measured, or not in time, keeps its last
// measurement for as long as that counts.
func (d *diskMeter) measure(ctx context.Context, pods []Pod) {
	measured := d.ask(ctx, pods)
	if ctx.Err() != nil {
		return // who was not asked in earnest is not known
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		d.last = make(map[string]diskUse, len(pods))
	}
	// Another measurement, begun with other pods, may have ended meanwhile.
	maps.DeleteFunc(d.last, func(_ string, u diskUse) bool { return !d.fresh(u.asked) })
	for i := range pods {
		id, u := pods[i].ID, measured[i]
		if old, ok := d.last[id]; ok && !u.bytes.Known {
			u.bytes, u.inodes, u.at = old.bytes, old.inodes, old.at
		}
		d.last[id] = u
	}
}

// ask measures the pods, a few at a time. What it gives of one that does not answer in time
// is unknown, and it is not asked again before it has answered.
func (d *diskMeter) ask(ctx context.Context, pods []Pod) []diskUse {
	ctx, cancel := context.WithTimeout(ctx, diskMeasure)
	defer cancel()
	type answer struct {
		pod int
		use diskUse
	}
	answers := make(chan answer, len(pods))
	places := make(chan struct{}, diskAtOnce)
	logsApart := sync.OnceValue(func() bool { return d.logsApart(cgroup.StatfsNearest) })
	measured := make([]diskUse, len(pods))
	asked, open := 0, make(map[string]bool, len(pods)) // open is guarded by d.mu
	for i := range pods {
		u := d.unknown(&pods[i])
		if measured[i] = u; !d.open(pods[i].ID, open) {
			continue
		}
		asked++
		go func() {
			select {
			case places <- struct{}{}:
				u = d.pod(ctx, &pods[i], logsApart)
				<-places
			case <-ctx.Done():
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(open, pods[i].ID)
			delete(d.hangs, pods[i].ID)
			answers <- answer{i, u}
		}()
	}
	for range asked {
		select {
		case a := <-answers:
			measured[a.pod] = a.use
			continue
		case <-ctx.Done():
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.hangs == nil {
			d.hangs = map[string]bool{}
		}
		maps.Copy(d.hangs, open)
		break
	}
	return measured
}

// open notes that a pod is asked for, unless it hangs.
func (d *diskMeter) open(id string, open map[string]bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.hangs[id] {
		open[id] = true
	}
	return open[id]
}

// stranger tells whether there is a container of which nobody has asked lately what it
// uses: that may be anything.
func (d *diskMeter) stranger(pods []Pod) (largest int64, found bool) {
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

func (d *diskMeter) fresh(at time.Duration) bool { return d.now()-at <= diskUseFresh }

// measureSince measures once the runtime has sampled every writable layer since
// then, or has had the time to. An older sample makes the pod that has just filled
// a disk look innocent, and another one guilty.
func (d *diskMeter) measureSince(ctx context.Context, pods []Pod, since time.Time) {
	wait, cancel := context.WithTimeout(ctx, sampleWait)
	defer cancel()
	for i := range pods {
		for j := range pods[i].Containers {
			d.awaitSample(wait, pods[i].Containers[j].ID, since)
		}
	}
	d.measure(ctx, pods)
}

// awaitSample waits for a sample of one container. A runtime that does not tell is
// not waited for.
func (d *diskMeter) awaitSample(ctx context.Context, id string, since time.Time) {
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

// unknown is a pod that was asked for and of which nothing is known yet.
func (d *diskMeter) unknown(p *Pod) diskUse {
	now := d.now()
	u := diskUse{at: now, asked: now}
	for i := range p.Containers {
		u.containers = append(u.containers, p.Containers[i].ID)
	}
	return u
}

func (d *diskMeter) pod(ctx context.Context, p *Pod, logsApart func() bool) diskUse {
	u := d.unknown(p)
	u.bytes.Known, u.inodes.Known = true, true
	for i := range p.Containers {
		bytes, inodes, ok := d.layer(ctx, p.Containers[i].ID)
		if !ok {
			u.bytes.Known, u.inodes.Known = false, false
			return u
		}
		u.bytes.Rootfs += bytes
		u.inodes.Rootfs += inodes
	}
	u.bytes.LogsApart, u.inodes.LogsApart = logsApart(), logsApart()
	u.bytes.Logs, u.inodes.Logs = walk(ctx, filepath.Join(d.logs, p.Namespace+"_"+p.Name+"_"+p.UID))
	for _, plugin := range localVolumes {
		bytes, inodes := walk(ctx, filepath.Join(d.root, "pods", p.UID, "volumes", plugin))
		u.bytes.Volumes += bytes
		u.inodes.Volumes += inodes
	}
	return u
}

// localVolumes are the plugins whose volumes a kubelet counts as a pod's own, by the name of
// their directory. Persistent ones may be bound from the same device, and stay when their pod goes.
var localVolumes = []string{"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~git-repo"}

// logsApart tells whether the pods' logs are on another device than nodefs.
func (d *diskMeter) logsApart(read func(dir string) (cgroup.Space, error)) bool {
	node, err := read(d.root)
	if err != nil {
		return false
	}
	logs, err := read(d.logs)
	return err == nil && apart(logs, node)
}

// apart tells whether two filesystems share no space. A subvolume of btrfs, which counts no
// inodes, has a device of its own, the pool of the whole and its size.
func apart(a, b cgroup.Space) bool {
	return a.Device != b.Device && (a.Total != b.Total || a.Pool != b.Pool || a.Inodes > 0)
}

func (d *diskMeter) layer(ctx context.Context, id string) (bytes, inodes int64, ok bool) {
	src, err := d.source()
	if err != nil {
		return 0, 0, false
	}
	u, err := src.WritableLayer(ctx, id)
	if errors.Is(err, cri.ErrGone) {
		return 0, 0, true
	}
	if err != nil || !u.Known {
		return 0, 0, false
	}
	return u.UsedBytes, u.InodesUsed, true
}

// walk adds up a tree: allocated bytes and inodes. It follows no link and
// crosses into no other filesystem, so that memory-backed volumes do not count.
// What is not there uses nothing. A file of several names counts with each for its part,
// so that it counts once where all of them are in the tree.
func walk(ctx context.Context, root string) (bytes, inodes int64) {
	var dev uint64
	var linkedBytes, linked float64
	entries := 0
	_ = filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil // a file that went away uses nothing
		}
		if entries++; entries > diskMaxEntries || ctx.Err() != nil {
			return fs.SkipAll
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if entries == 1 {
			dev = st.Dev
		}
		if st.Dev != dev {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if names := float64(st.Nlink); names > 1 && !e.IsDir() {
			linkedBytes += float64(st.Blocks*512) / names
			linked += 1 / names
			return nil
		}
		bytes += st.Blocks * 512
		inodes++
		return nil
	})
	return bytes + int64(math.Round(linkedBytes)), inodes + int64(math.Round(linked))
}
