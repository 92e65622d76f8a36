package world

import (
	"context"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cgroup/dirtree"
	"github.com/criguard/criguard/cgroup/mountinfo"
	"github.com/criguard/criguard/cri/critest"
)

// disk is the filesystem of the node that may run short.
type disk struct {
	runtime *critest.Server // which has the images and the writable layers
	total   int64           // bytes
	reserve int64           // bytes of it that only root may use, as on ext4
	inodes  int64           // that pods may use
	others  int64           // inodes that no pod may use
	other   atomic.Int64    // bytes of all else
	volumes volumes
	logs    logs
	apart   apart
	deleted deletions
	walk    time.Duration // how long it takes to measure a volume
}

// free is what is left of the disk for others than root.
func (d *disk) free() space { return d.open(d.unused()) }

// open is what others than root may use of what is left. What root has taken of its reserve comes back first.
func (d *disk) open(left space) space { return space{max(left.bytes-d.reserve, 0), left.inodes} }

// unused is what is left of the disk for root.
func (d *disk) unused() space {
	used := d.used()
	return space{max(d.total-used.bytes, 0), max(d.inodes-used.inodes, 0)}
}

// used is what all files have of the disk.
func (d *disk) used() space {
	used := d.deleted.left(time.Now()).plus(space{bytes: d.other.Load()})
	if !d.apart.layers {
		bytes, inodes := d.runtime.DiskUse()
		used = used.plus(space{bytes, inodes})
	}
	if !d.apart.volumes {
		used = used.plus(d.volumes.sum())
	}
	if !d.apart.logs {
		used = used.plus(d.logs.sum())
	}
	return used
}

func (d *disk) available() int64 { return d.free().bytes }

// removeVolume removes the volume of a pod.
func (d *disk) removeVolume(uid string) {
	if had := d.volumes.take(uid); had != (space{}) && !d.apart.volumes {
		d.deleted.add(uid, had)
	}
}

// volumes are what the emptyDirs of pods have, by UID.
type volumes struct {
	mu  sync.Mutex
	had map[string]space
}

func (v *volumes) of(uid string) space {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.had[uid]
}

func (v *volumes) sum() (sum space) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, had := range v.had {
		sum = sum.plus(had)
	}
	return sum
}

func (v *volumes) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.had)
}

func (v *volumes) add(uid string, more space) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.had == nil {
		v.had = map[string]space{}
	}
	v.had[uid] = v.had[uid].plus(more)
}

func (v *volumes) take(uid string) space {
	v.mu.Lock()
	defer v.mu.Unlock()
	had := v.had[uid]
	delete(v.had, uid)
	return had
}

// tree implements the Tree of a machine. The files of volumes are only counted: those in memory would be too large.
func (d *disk) tree(ctx context.Context, dir string, progress func(dirtree.Usage)) (dirtree.Usage, error) {
	if uid, ok := strings.CutSuffix(dir, "/volumes/kubernetes.io~empty-dir"); ok {
		uid = filepath.Base(uid)
		if d.volumes.of(uid) == (space{}) {
			return dirtree.Usage{}, nil
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(uid))
		time.Sleep(d.walk / 1000 * time.Duration(900+h.Sum32()%100)) // no two end at the same time
		had := d.volumes.of(uid)
		return dirtree.Usage{Bytes: had.bytes, Inodes: had.inodes + min(had.bytes, 10)}, nil
	}
	if filepath.Dir(dir) == d.logs.dir {
		had := d.logs.of(dir)
		return dirtree.Usage{Bytes: had.bytes, Inodes: had.inodes + min(had.bytes, 3)}, nil
	}
	if filepath.Base(filepath.Dir(dir)) == layers {
		bytes, inodes := d.runtime.Written(filepath.Base(dir))
		return dirtree.Usage{Bytes: bytes, Inodes: inodes}, nil
	}
	return dirtree.Measure(ctx, dir, progress)
}

// statfs implements the Statfs of a machine.
func (d *disk) statfs(path string) (cgroup.Space, error) {
	if d.isApart(path) {
		return roomy, nil
	}
	left := d.unused()
	available := d.open(left).bytes
	return cgroup.Space{
		Device: 1, Total: d.total, Available: available, Reserved: left.bytes - available, Inodes: d.inodes + d.others, InodesFree: left.inodes,
	}, nil
}

// fill lets a pod write to its layer, its volume and its log.
func (d *disk) fill(p *pod, bytes int64) {
	free := d.free()
	if p.root {
		free = d.unused()
	}
	more := space{bytes: min(bytes, free.bytes)}
	if p.fileSize > 0 {
		more.inodes = min(more.bytes/p.fileSize, free.inodes)
		more.bytes = min(more.bytes, (more.inodes+1)*p.fileSize)
	}
	toVolume := more.times(p.toVolume)
	toLayer := space{more.bytes - toVolume.bytes, more.inodes - toVolume.inodes}
	if toLog := toLayer.times(p.toLog); toLog.bytes > 0 { // one file
		d.logs.add(d.logs.ofPod(p), space{bytes: toLog.bytes})
		toLayer = toLayer.plus(toLog.times(-1))
	}
	p.wrote = p.wrote.plus(toLayer)
	d.volumes.add(p.UID, toVolume)
	d.runtime.Write(p.Containers[0].ID, toLayer.bytes, toLayer.inodes)
}

// image is one that no pod uses.
type image struct {
	id     string
	pulled time.Duration // at this time of the world
}

// pull adds an image that no pod uses.
func (w *World) pull(name string, size int64) {
	id := w.runtime.AddImage(critest.ImageSpec{Tags: []string{"registry.local/" + name}, Size: size})
	w.images, w.took = append(w.images, image{id, w.time()}), append(w.took, taking{w.Now(), size})
}

// time is the time since the world began, with what the machine has slept.
func (w *World) time() time.Duration { return w.Now() + time.Duration(w.slept.Load()) }

// layers is the directory of all writable layers.
const layers = "layers"

// podDirs are the directories that a kubelet and a runtime make for a pod.
func (k *kernel) podDirs(p *pod) []string {
	dirs := []string{
		filepath.Join(k.root, "kubelet/pods", p.UID),
		k.disk.logs.ofPod(p),
	}
	for _, c := range p.Containers {
		if k.overlays {
			dirs = append(dirs, filepath.Join(k.root, layers, c.ID))
		}
	}
	return dirs
}

// overlayMounts implements the Mounts of a machine: the root filesystems of containers, where containerd mounts them.
func (k *kernel) overlayMounts() (all []mountinfo.Mount, err error) {
	if !k.overlays {
		return nil, nil
	}
	dirs, err := os.ReadDir(filepath.Join(k.root, layers))
	for _, dir := range dirs {
		all = append(all, mountinfo.Mount{
			Type: "overlay", Root: "/", Point: filepath.Join("/run/containerd", dir.Name(), "rootfs"),
			Options: []string{"rw", "upperdir=" + filepath.Join(k.root, layers, dir.Name())},
		})
	}
	return all, err
}

func (k *kernel) makePodDirs(p *pod) {
	for _, dir := range k.podDirs(p) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			k.tb.Fatal(err)
		}
	}
	k.makeLog(p)
}

func (k *kernel) removePodDirs(p *pod) {
	k.disk.removeLogs(p)
	for _, dir := range k.podDirs(p) {
		if err := os.RemoveAll(dir); err != nil {
			k.tb.Fatal(err)
		}
	}
}
