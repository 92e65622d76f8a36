package world

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cgroup/dirtree"
	"github.com/criguard/criguard/cri/critest"
)

// disk is the only filesystem of the node.
type disk struct {
	runtime *critest.Server // which has the images and the writable layers
	total   int64           // bytes
	other   atomic.Int64    // bytes of all else
	volumes volumes
	walk    time.Duration // how long it takes to measure a volume
}

func (d *disk) available() int64 {
	return max(d.total-d.other.Load()-d.runtime.DiskUse()-d.volumes.sum(), 0)
}

// volumes are the bytes in the emptyDirs of pods, by UID.
type volumes struct {
	mu    sync.Mutex
	bytes map[string]int64
}

func (v *volumes) of(uid string) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.bytes[uid]
}

func (v *volumes) sum() (bytes int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range v.bytes {
		bytes += b
	}
	return bytes
}

func (v *volumes) add(uid string, bytes int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.bytes == nil {
		v.bytes = map[string]int64{}
	}
	v.bytes[uid] += bytes
}

func (v *volumes) remove(uid string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.bytes, uid)
}

// tree implements the Tree of a machine. The files of volumes are only counted: those in memory would be too large.
func (d *disk) tree(ctx context.Context, dir string, progress func(dirtree.Usage)) (dirtree.Usage, error) {
	if uid, ok := strings.CutSuffix(dir, "/volumes/kubernetes.io~empty-dir"); ok {
		uid = filepath.Base(uid)
		h := fnv.New32a()
		_, _ = h.Write([]byte(uid))
		time.Sleep(d.walk / 1000 * time.Duration(900+h.Sum32()%100)) // no two end at the same time
		bytes := d.volumes.of(uid)
		return dirtree.Usage{Bytes: bytes, Inodes: min(bytes, 10)}, nil
	}
	return dirtree.Measure(ctx, dir, progress)
}

// statfs implements the Statfs of a machine.
func (d *disk) statfs(string) (cgroup.Space, error) {
	return cgroup.Space{Device: 1, Total: d.total, Available: d.available(), Inodes: 1e7, InodesFree: 9e6}, nil
}

// fill lets a pod write to its layer and to its volume.
func (d *disk) fill(p *pod, bytes int64) {
	bytes = min(bytes, d.available())
	toVolume := int64(float64(bytes) * p.toVolume)
	p.wrote += bytes - toVolume
	d.volumes.add(p.UID, toVolume)
	d.runtime.Write(p.Containers[0].ID, bytes-toVolume)
}

// uses returns the bytes that a pod has on the disk.
func (d *disk) uses(p *pod) int64 { return p.wrote + d.volumes.of(p.UID) }

// image is one that no pod uses.
type image struct {
	id     string
	pulled time.Duration // at this time of the world
}

// pull adds an image that no pod uses.
func (w *World) pull(name string, size int64) {
	id := w.runtime.AddImage(critest.ImageSpec{Tags: []string{"registry.local/" + name}, Size: size})
	w.images = append(w.images, image{id, w.time()})
}

// time is the time since the world began, with what the machine has slept.
func (w *World) time() time.Duration { return w.Now() + time.Duration(w.slept.Load()) }

// podDirs are the directories that a kubelet makes for a pod.
func (k *kernel) podDirs(p *pod) []string {
	return []string{
		filepath.Join(k.root, "kubelet/pods", p.UID),
		filepath.Join(k.root, "logs", fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID)),
	}
}

func (k *kernel) makePodDirs(p *pod) {
	for _, dir := range k.podDirs(p) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			k.tb.Fatal(err)
		}
	}
}

func (k *kernel) removePodDirs(p *pod) {
	for _, dir := range k.podDirs(p) {
		if err := os.RemoveAll(dir); err != nil {
			k.tb.Fatal(err)
		}
	}
}
