package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Root is where the cgroup hierarchies are mounted, as a rule /sys/fs/cgroup.
type Root string

// Proc is where procfs is mounted, as a rule /proc.
type Proc string

// Version is the kind of hierarchy that has the memory controller.
type Version uint8

// The versions. Hybrid is v1 with a v2 hierarchy beside it that does not have the
// memory controller.
const (
	V1 Version = iota + 1
	Hybrid
	V2
)

// String is "v1", "hybrid" or "v2".
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

// Layout is where a node's controllers are. It is not changed once detected and
// may be copied and used from several goroutines.
type Layout struct {
	Version Version
	root    string
	proc    Proc
	v1      map[string]string // the directory of each controller that is mounted as v1
	unified string            // the directory of the v2 hierarchy; "" = there is none
	tree    string            // the controller whose hierarchy pods are looked up in; "" = the v2 one
}

// Detect finds out where the hierarchies are: from the mounts that procfs shows
// below root, else (a captured tree, a procfs of another mount namespace) from the
// files there. Which one has the memory controller decides the version. It is no
// error when none has (cgroup_disable=memory): what reads it is ErrUnsupported.
func Detect(root Root, proc Proc) (Layout, error) {
	l := Layout{root: filepath.Clean(string(root)), proc: proc}
	if info, err := os.ReadFile(filepath.Join(string(proc), "self/mountinfo")); err == nil {
		l.fromMounts(parseMounts(info))
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
	return l, nil
}

// fromMounts takes the hierarchies mounted at or below the root. Where one is
// mounted twice, the mount of the whole of it counts, then the first.
func (l *Layout) fromMounts(mounts []mount) {
	l.v1 = map[string]string{}
	for _, whole := range []bool{true, false} {
		for _, m := range mounts {
			if (m.root == "/") != whole || (m.point != l.root && !isBelow(m.point, l.root)) {
				continue
			}
			if m.v2 {
				l.unified = cmp.Or(l.unified, m.point)
				continue
			}
			for _, c := range m.options {
				l.v1[c] = cmp.Or(l.v1[c], m.point)
			}
		}
	}
	for _, option := range []string{"rw", "ro"} {
		delete(l.v1, option)
	}
}

// fromFiles takes the hierarchies from the names below the root, such as
// "memory", "cpu,cpuacct" and "unified".
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
		case l.unified == l.root: // what is below are cgroups
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

// decide sets the version and the hierarchy that pods are looked up in.
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
		l.tree = slices.Min(slices.Collect(maps.Keys(l.v1))) // any will do, but always the same
	}
	if l.Version == V1 && l.unified != "" {
		l.Version = Hybrid
	}
}

func (l *Layout) unifiedHas(controller string) bool {
	b, err := os.ReadFile(filepath.Join(l.unified, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(b)), controller)
}

// Dir is the directory of a cgroup in the hierarchy of a controller ("memory",
// "pids"), where it would be if neither exists. No path leads out of the hierarchy.
func (l Layout) Dir(controller, rel string) string {
	base := cmp.Or(l.v1[controller], l.unified, filepath.Join(l.root, controller))
	return filepath.Join(base, path.Clean("/"+rel))
}

// dir is the directory of a cgroup where pods are looked up.
func (l Layout) dir(rel string) string { return l.Dir(l.tree, rel) }

// Children lists the names of the cgroups right below one, in their order. ErrGone
// when it was removed.
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

// Inode tells a cgroup from another one that was made under the same path after
// it was removed. ErrGone when there is none.
func (l Layout) Inode(rel string) (uint64, error) {
	ino, err := inode(l.dir(rel))
	if err != nil {
		return 0, fmt.Errorf("look up cgroup %s: %w", rel, err)
	}
	return ino, nil
}

// cleanPath is a cgroup's path in its one spelling. It refuses what is no path of
// a cgroup below the root: "", the root itself, and anything with "..".
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
