package cgroup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup/mountinfo"
)

// Root is the mount point of the cgroup hierarchies, usually /sys/fs/cgroup.
type Root string

// Proc is the mount point of procfs, usually /proc.
type Proc string

// Version is the kind of hierarchy that holds the memory controller.
type Version uint8

// The versions. Hybrid is v1 plus a v2 hierarchy without the memory controller.
const (
	V1 Version = iota + 1
	Hybrid
	V2
)

// String returns "v1", "hybrid" or "v2".
func (v Version) String() string {
	switch v {
	case V1:
		return "v1"
	case Hybrid:
		return "hybrid"
	case V2:
		return "v2"
	default:
		return fmt.Sprintf("Version(%d)", uint8(v))
	}
}

// Layout describes where a node's controllers are mounted. It does not change after detection. It may
// be copied and used from several goroutines.
type Layout struct {
	Version  Version
	root     string
	proc     Proc
	v1       map[string]string // directory of each controller that is mounted as v1
	unified  string            // directory of the v2 hierarchy; "" = not mounted
	tree     string            // controller whose hierarchy is used to look up pods; "" = v2
	flat     bool              // memory is not counted in the cgroups above, see CountsBelow
	released *releases         // memory of killed processes
}

// Detect finds the hierarchies from the mounts below root in procfs. If it finds no mounts (a captured
// tree, a procfs of another mount namespace), it looks at the files below root. The hierarchy with the
// memory controller decides the version. A node without one (cgroup_disable=memory) is not an error,
// but reading memory then returns ErrUnsupported.
func Detect(root Root, proc Proc) (Layout, error) {
	l := Layout{root: filepath.Clean(string(root)), proc: proc, released: &releases{}}
	if info, err := os.ReadFile(filepath.Join(string(proc), "self/mountinfo")); err == nil {
		mounts, _ := mountinfo.Parse(bytes.NewReader(info)) // after an endless line there is nothing of use
		l.fromMounts(mounts)
	}
	if len(l.v1) == 0 && l.unified == "" {
		if err := l.fromFiles(); err != nil {
			return Layout{}, fmt.Errorf("detect cgroups: %w", err)
		}
	}
	if len(l.v1) == 0 && l.unified == "" {
		return Layout{}, fmt.Errorf("detect cgroups: nothing is mounted below %s", root)
	}
	l.decide()
	l.flat = l.isFlat("/")
	return l, nil
}

// fromMounts collects the hierarchies mounted at or below the root. If one is mounted twice, a mount of
// the whole hierarchy takes precedence, then the first mount.
func (l *Layout) fromMounts(mounts []mountinfo.Mount) {
	l.v1 = map[string]string{}
	for _, whole := range []bool{true, false} {
		for _, m := range mounts {
			if (m.Root == "/") != whole || (m.Point != l.root && !isBelow(m.Point, l.root)) {
				continue
			}
			switch m.Type {
			case "cgroup2":
				l.unified = cmp.Or(l.unified, m.Point)
			case "cgroup":
				for _, c := range m.Options {
					l.v1[c] = cmp.Or(l.v1[c], m.Point)
				}
			}
		}
	}
	for _, option := range []string{"rw", "ro"} {
		delete(l.v1, option)
	}
}

// fromFiles infers the hierarchies from directory names below the root, such as "memory", "cpu,cpuacct"
// and "unified".
func (l *Layout) fromFiles() error {
	if isFile(filepath.Join(l.root, "cgroup.controllers")) {
		l.unified = l.root
	}
	entries, err := os.ReadDir(l.root)
	if err != nil {
		return err
	}
	l.v1 = map[string]string{}
	for _, e := range entries {
		dir := filepath.Join(l.root, e.Name())
		switch {
		case l.unified == l.root: // everything below is a cgroup
		case isFile(filepath.Join(dir, "cgroup.controllers")):
			l.unified = cmp.Or(l.unified, dir)
		case isFile(filepath.Join(dir, "cgroup.procs")):
			for c := range strings.SplitSeq(e.Name(), ",") {
				l.v1[c] = cmp.Or(l.v1[c], dir)
			}
		}
	}
	return nil
}

// decide sets the version and the hierarchy in which pods are looked up.
func (l *Layout) decide() {
	l.Version = V1
	switch {
	case l.v1["memory"] != "":
		l.tree = "memory"
	case l.unified != "" && (len(l.v1) == 0 || l.unified == l.root || l.unifiedHas("memory")):
		l.Version = V2
	case l.v1["pids"] != "":
		l.tree = "pids"
	default:
		l.tree = slices.Min(slices.Collect(maps.Keys(l.v1))) // any would do, but the choice must be stable
	}
	if l.Version == V1 && l.unified != "" {
		l.Version = Hybrid
	}
}

func (l *Layout) unifiedHas(controller string) bool {
	b, err := os.ReadFile(filepath.Join(l.unified, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(b)), controller)
}

// Dir returns the directory of a cgroup in the hierarchy of a controller ("memory", "pids"), whether it
// exists or not. No path leads out of the hierarchy.
func (l Layout) Dir(controller, rel string) string {
	base := cmp.Or(l.v1[controller], l.unified)
	if base == "" {
		base = filepath.Join(l.root, controller)
	}
	return filepath.Join(base, path.Clean("/"+rel))
}

// dir returns the directory of a cgroup in the hierarchy in which pods are looked up.
func (l Layout) dir(rel string) string { return l.Dir(l.tree, rel) }

// CountsBelow reports whether the memory of a cgroup includes that of the cgroups below it. It does not if memory.use_hierarchy
// is off (v1 before linux 5.11), as in OpenWrt, and in Alpine and other systems with OpenRC: systemd switches it on.
func (l Layout) CountsBelow(rel string) bool { return !l.flat || !l.isFlat(rel) }

// isFlat reads memory.use_hierarchy. Once it is on for a cgroup, the kernel keeps it on below.
func (l Layout) isFlat(rel string) bool {
	n, err := readNumber(filepath.Join(l.Dir("memory", rel), "memory.use_hierarchy"))
	return err == nil && n == 0
}

// Root returns the mount point of the hierarchies.
func (l Layout) Root() string { return l.root }

// ReadOnly reports whether the hierarchy in which pods are looked up is mounted read-only, as in a
// container by default.
func (l Layout) ReadOnly() bool { return errors.Is(unix.Access(l.dir("/"), unix.W_OK), unix.EROFS) }

// Children lists the names of the cgroups directly below one, sorted. It returns ErrGone if the cgroup
// was removed.
func (l Layout) Children(rel string) ([]string, error) {
	entries, err := os.ReadDir(l.dir(rel))
	if err != nil {
		return nil, fmt.Errorf("list cgroups below %s: %w", rel, gone(err))
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Inode returns the inode of a cgroup's directory. It differs if the cgroup was removed and created
// again under the same path. Inode returns ErrGone if the cgroup does not exist.
func (l Layout) Inode(rel string) (uint64, error) {
	ino, err := inode(l.dir(rel))
	if err != nil {
		return 0, fmt.Errorf("look up cgroup %s: %w", rel, err)
	}
	return ino, nil
}

// cleanPath normalizes the path of a cgroup. It rejects "", the root itself, and any path with "..".
func cleanPath(rel string) (string, error) {
	clean := path.Clean("/" + rel)
	if clean == "/" || slices.Contains(strings.Split(rel, "/"), "..") || strings.ContainsRune(rel, 0) {
		return "", errors.New("not the path of a cgroup below the root")
	}
	return clean, nil
}

func isBelow(rel, parent string) bool {
	return strings.HasPrefix(rel, strings.TrimSuffix(parent, "/")+"/")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
