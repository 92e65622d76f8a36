package mounts

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/socket"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/lastgood"
)

// Options says where the parts of the node are.
type Options struct {
	Layout       cgroup.Layout
	Proc         cgroup.Proc
	KubeletRoots []string // directories of which one may be the kubelet's root directory
	PodLogs      string   // the directory of the pods' logs
}

// Watcher looks for the parts of the node that are not visible.
type Watcher struct {
	opt     Options
	last    lastgood.Value[view]
	before  view                     // as of the last Look
	missing atomic.Pointer[[]string] // nil = not looked yet
}

// New returns a Watcher that has not looked yet.
func New(opt Options) *Watcher { return &Watcher{opt: opt} }

// Missing returns what Look returned last.
func (w *Watcher) Missing() []string {
	if missing := w.missing.Load(); missing != nil {
		return *missing
	}
	return nil
}

// view is what this process can see of the node.
type view struct {
	RuntimeDirs string // directories in which a runtime may listen
	Runtime     sight  // of one of them

	CgroupRoot     string
	CgroupReadOnly bool
	Cgroups        sight // of the pods' cgroups
	Processes      sight // of the processes in them

	KubeletRoot string
	PodDirs     sight // of the pods' directories below it
	PodLogs     string
	LogDirs     sight // of the pods' directories below it
	ImageDir    string
	Images      sight // of ImageDir

	listed time.Duration            // the listing that was looked at
	unseen map[string]time.Duration // the listing in which each part of a pod was first not visible
	first  bool                     // nothing is known of before
}

// stillThere is how much later a pod must be listed again for what is not visible of it to count: just after it has ended, its
// cgroups are gone, while the runtime still lists it.
const stillThere = time.Second

// sight says whether something is visible: one of several things of its kind is enough.
type sight struct {
	Expected bool // the node has it
	Seen     bool
}

// look records a thing that the node has. It does not look for another one once one was seen.
func (s *sight) look(see func() bool) { s.Expected, s.Seen = true, s.Seen || see() }

// lookAt looks at the part of a pod with that key.
func (m *view) lookAt(s *sight, key string, before map[string]time.Duration, see func() bool) {
	if s.Seen || see() {
		s.Expected, s.Seen = true, true
		return
	}
	since, known := before[key]
	if !known {
		since = m.listed
	}
	m.unseen[key] = since
	s.Expected = s.Expected || m.first || m.listed-since >= stillThere
}

func (s sight) missing() bool { return s.Expected && !s.Seen }

// missing returns what cannot be seen or written, what that means, and what to do.
func (m *view) missing() (all []string) {
	for _, c := range []struct {
		is   bool
		text string
	}{
		{m.Runtime.missing(), "no directory of a runtime's socket exists: " + m.RuntimeDirs + " (hint: in a pod, mount the one that the node has)"},
		{m.CgroupReadOnly, m.CgroupRoot + " is read-only: " + readOnlyCgroups},
		{m.Cgroups.missing(), "the pods' cgroups are not in " + m.CgroupRoot + ": their usage is unknown (hint: in a pod, mount the node's /sys/fs/cgroup there)"},
		{m.Processes.missing(), "the pods' processes are not visible: a kill may have to wait for the runtime (hint: in a pod, set hostPID: true)"},
		{m.PodDirs.missing(), "no pod has a directory in " + m.KubeletRoot + "/pods: volumes are not measured, and nodefs may be another filesystem (hint: [node] root_dir names the kubelet's root directory; in a pod, mount it there)"},
		{m.LogDirs.missing(), "no pod has a directory in " + m.PodLogs + ": logs are neither measured nor removed (hint: [node] pod_log_dir names the directory of the pods' logs; in a pod, mount it there)"},
		{m.Images.missing(), m.ImageDir + ", where the runtime keeps its images, does not exist: imagefs may be another filesystem (hint: in a pod, mount it there)"},
	} {
		if c.is {
			all = append(all, c.text)
		}
	}
	return all
}

const readOnlyCgroups = "criguard cannot kill at once there, nor be woken (hint: in a pod, mount the node's /sys/fs/cgroup without readOnly)"

// ErrReadOnlyCgroups reports that criguard cannot write to the cgroups, and so cannot enforce.
var ErrReadOnlyCgroups = errors.New("the cgroup tree is read-only: " + readOnlyCgroups)

// Look finds out what is missing: each with what that means and what to do. inv is the last listing, root is what is taken for
// the kubelet's root directory, image the directory in which the runtime keeps its images ("" = not known), endpoint the configured
// one. found is the directory in which the kubelet has the pods, or root. If a disk stalls, the last answer remains. Look must be
// called from one goroutine at a time.
func (w *Watcher) Look(ctx context.Context, inv inventory.Inventory, root, image, endpoint string) (missing []string, found string) {
	ctx, cancel := context.WithTimeout(ctx, lastgood.FileTimeout)
	defer cancel()
	before := w.before
	w.before = w.last.Get(ctx, func() view { return w.see(inv, root, image, endpoint, before) })
	missing = w.before.missing()
	w.missing.Store(&missing)
	return missing, cmp.Or(w.before.KubeletRoot, root)
}

// see may hang.
func (w *Watcher) see(inv inventory.Inventory, root, image, endpoint string, before view) view {
	m := view{
		listed: inv.At, unseen: map[string]time.Duration{}, first: before.unseen == nil,
		CgroupRoot: w.opt.Layout.Root(), CgroupReadOnly: w.opt.Layout.ReadOnly(),
		KubeletRoot: root, PodLogs: w.opt.PodLogs, ImageDir: image,
	}
	if inv.At < 0 { // no runtime has answered
		dirs := socketDirs(endpoint)
		m.RuntimeDirs = strings.Join(dirs, ", ")
		for _, dir := range dirs {
			m.Runtime.look(func() bool { return exists(dir) })
		}
	}
	for i := range inv.Pods {
		p := &inv.Pods[i]
		if inventory.IsKubeletPod(p.Annotations) {
			logs := filepath.Join(m.PodLogs, p.LogDirName())
			m.lookAt(&m.PodDirs, "directory of "+p.UID, before.unseen, func() bool { return w.seePodDir(&m, p.UID) })
			m.lookAt(&m.LogDirs, logs, before.unseen, func() bool { return exists(logs) })
		}
		for j := range p.Containers {
			if c := &p.Containers[j]; c.Running && c.Cgroup != "" {
				w.seeContainer(&m, c.Cgroup, before.unseen)
			}
		}
	}
	if image != "" {
		m.Images.look(func() bool { return exists(image) })
	}
	return m
}

// seePodDir looks for the directory of a pod: criguard may have started before there was a kubelet.
func (w *Watcher) seePodDir(m *view, uid string) bool {
	for _, root := range append([]string{m.KubeletRoot}, w.opt.KubeletRoots...) {
		if exists(filepath.Join(root, "pods", uid)) {
			m.KubeletRoot = root
			return true
		}
	}
	return false
}

// seeContainer looks at the cgroup of a running container. Its processes are invisible only from a PID
// namespace of another container. There, only this process and its children are visible in its own cgroup.
func (w *Watcher) seeContainer(m *view, rel string, before map[string]time.Duration) {
	there := func() bool { _, err := w.opt.Layout.Inode(rel); return err == nil }
	m.lookAt(&m.Cgroups, rel, before, there)
	if m.Processes.Seen || !cgroup.OwnPIDs(w.opt.Proc) || !there() {
		return
	}
	if pids, err := w.opt.Layout.Procs(rel); err == nil && !slices.Contains(pids, os.Getpid()) {
		m.lookAt(&m.Processes, "processes of "+rel, before, func() bool { return len(pids) > 0 })
	}
}

// socketDirs returns the directories of the configured endpoint, or else of those that criguard searches. /run
// does not count there: every container has one.
func socketDirs(endpoint string) (dirs []string) {
	endpoints := []string{endpoint}
	if endpoint == "" {
		endpoints = cri.KnownEndpoints()
	}
	for _, e := range endpoints {
		file, err := socket.Path(e)
		if err != nil {
			continue
		}
		dir := filepath.Dir(file)
		if (endpoint != "" || dir != "/run") && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// exists reports whether a file exists. A file that cannot be read counts as one that does.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
