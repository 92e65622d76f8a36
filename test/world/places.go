package world

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/criguard/criguard/cgroup"
)

// apart says which files are on another disk than the one that may run short: the pods' volumes (nodefs), the images and writable
// layers, and the pods' logs.
type apart struct{ volumes, layers, logs bool }

// roomy is the other disk.
var roomy = cgroup.Space{Device: 2, Total: 1000 * gib, Available: 900 * gib, Inodes: 1e9, InodesFree: 9e8}

// isApart reports whether a path is on the other disk.
func (d *disk) isApart(path string) bool {
	switch {
	case strings.HasPrefix(path, d.logs.dir):
		return d.apart.logs
	case strings.HasPrefix(path, filepath.Dir(strings.TrimPrefix(d.runtime.Endpoint(), "unix://"))):
		return d.apart.layers
	default:
		return d.apart.volumes
	}
}

// files is what a pod has, on whichever disk.
type files struct{ layer, volume, log space }

func (f files) sum() space { return f.layer.plus(f.volume).plus(f.log) }

func (d *disk) has(p *pod) files {
	return files{layer: p.wrote, volume: d.volumes.of(p.UID), log: d.logs.of(d.logs.ofPod(p))}
}

// on is the part of files that is on the disk.
func (d *disk) on(f files) space {
	if d.apart.layers {
		f.layer = space{}
	}
	if d.apart.volumes {
		f.volume = space{}
	}
	if d.apart.logs {
		f.log = space{}
	}
	return f.sum()
}

// logs are what the logs of pods have, by their directories. The files are empty: those in memory would be too large.
type logs struct {
	volumes
	dir string // of all
}

// ofPod is the directory of a pod's logs.
func (l *logs) ofPod(p *pod) string {
	return filepath.Join(l.dir, fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID))
}

// makeLog makes the log of a pod that writes one, or whose earlier attempt did.
func (k *kernel) makeLog(p *pod) {
	if p.toLog == 0 {
		return
	}
	path := p.Containers[0].LogPath
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
		k.tb.Fatal(err)
	}
}

// removeLogs removes what the logs of a pod have.
func (d *disk) removeLogs(p *pod) {
	dir := d.logs.ofPod(p)
	if had := d.logs.take(dir); had != (space{}) && !d.apart.logs {
		d.deleted.add(dir, had)
	}
}

// seeLogs finds the logs that the service has removed.
func (w *World) seeLogs() {
	if w.disk.logs.count() == 0 {
		return
	}
	for _, p := range w.pods {
		if w.disk.logs.of(w.disk.logs.ofPod(p)) == (space{}) {
			continue
		}
		if _, err := os.Stat(p.Containers[0].LogPath); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if p.runs() {
			w.violate("the log of %s was removed, and it runs", p)
		}
		w.disk.removeLogs(p)
	}
}

// apartOf puts some files on another disk than the one that may run short, in one of two seeds. It has dice of its own.
func apartOf(w *World, seed uint64) {
	d := diceOf(seed, 59)
	if !d.oneIn(2) {
		return
	}
	w.disk.apart = pick(d, apart{logs: true}, apart{volumes: true}, apart{volumes: true}, apart{layers: true}, apart{volumes: true, logs: true}, apart{layers: true, logs: true})
	w.logf("on another disk: %+v", w.disk.apart)
}

// giveLogs lets some pods write to their logs, in one of two seeds and wherever not all files are on one disk, and some have written
// much before. It has dice of its own.
func giveLogs(w *World, seed uint64) {
	d := diceOf(seed, 67)
	if w.disk.apart == (apart{}) && !d.oneIn(2) {
		return
	}
	for _, p := range w.pods {
		if d.oneIn(3) {
			continue
		}
		p.toLog = pick(d, 0.5, 1)
		w.makeLog(p)
		if bytes := d.spread(10, 3000) * mib; d.oneIn(4) && bytes < w.disk.other.Load() {
			w.disk.logs.add(w.disk.logs.ofPod(p), space{bytes: bytes})
			w.disk.other.Add(-bytes)
		}
	}
}

// discarded checks that a stop for the disk has removed the writable layer and the log from it.
func (c *check) discarded(w *World, p *pod) {
	has := files{log: w.disk.has(p).log}
	if w.runtime.Has(p.Containers[0].ID) {
		has.layer = p.wrote
	}
	if slices.ContainsFunc(w.pods, func(o *pod) bool { return o.UID == p.UID && o.Pod.ID != p.ID && o.spec.Attempt > p.spec.Attempt }) {
		return // the log is that of the pod that came back
	}
	if left := w.disk.on(has); p.order.pool() == "disk" && !p.asked && !p.hangs && p.linger == 0 && left.bytes > 0 {
		w.violate("%s was stopped for %s, and %d MiB of its layer and log are left", p, p.order.signal, left.bytes/mib)
	}
}
