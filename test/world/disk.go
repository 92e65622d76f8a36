package world

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri/critest"
)

// disk is the only filesystem of the node.
type disk struct {
	runtime *critest.Server // which has the images and the writable layers
	total   int64           // bytes
	other   atomic.Int64    // bytes of what is neither
}

func (d *disk) available() int64 { return max(d.total-d.other.Load()-d.runtime.DiskUse(), 0) }

// statfs implements the Statfs of a machine.
func (d *disk) statfs(string) (cgroup.Space, error) {
	return cgroup.Space{Device: 1, Total: d.total, Available: d.available(), Inodes: 1e7, InodesFree: 9e6}, nil
}

// fill lets a pod write.
func (d *disk) fill(p *pod, bytes int64) {
	bytes = min(bytes, d.available())
	p.wrote += bytes
	d.runtime.Write(p.Containers[0].ID, bytes)
}

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
