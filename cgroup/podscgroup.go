package cgroup

import (
	"fmt"
	"path"
	"strings"
)

// Driver is who makes the cgroups of pods, as their names tell: names end in
// ".slice" and repeat their parents' under systemd.
type Driver string

// The drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// podsDepth is how deep the pods cgroup is looked for: a kubelet with a
// --cgroup-root has it below that.
const podsDepth = 3

// FindPods finds the cgroup of all pods of a kubelet: the one whose name is, or
// ends in, kubepods or kubepods.slice. After a change of driver there are two: the
// one with processes counts, then the one nearest to the root, then the one whose
// path sorts first. ErrGone when there is none (yet).
func (l Layout) FindPods() (rel string, driver Driver, err error) {
	var found []string
	level := []string{"/"}
	for range podsDepth {
		var next []string
		for _, parent := range level {
			names, err := l.Children(parent)
			if err != nil {
				continue // removed meanwhile, or not ours to read
			}
			for _, name := range names {
				child := path.Join(parent, name)
				if isPodsCgroup(name) {
					found = append(found, child)
				} else {
					next = append(next, child)
				}
			}
		}
		level = next
	}
	for _, rel := range found {
		if populated, err := l.Populated(rel); err == nil && populated {
			return rel, driverOf(rel), nil
		}
	}
	if len(found) == 0 {
		return "", "", fmt.Errorf("find pods cgroup below %s: %w", l.dir("/"), ErrGone)
	}
	return found[0], driverOf(found[0]), nil
}

// PodsCgroupOf finds the pods cgroup by the path of a pod's: the one nearest to the root
// that is named so. "" where there is none above it.
func PodsCgroupOf(pod string) string {
	at := "/"
	for name := range strings.SplitSeq(strings.Trim(pod, "/"), "/") {
		if at = path.Join(at, name); isPodsCgroup(name) {
			return at
		}
	}
	return ""
}

// isPodsCgroup tells the cgroup of all pods by its name, which ends in what the kubelet
// calls it after a prefix of the slices it is in.
func isPodsCgroup(name string) bool {
	return strings.HasSuffix(strings.TrimSuffix(name, ".slice"), "kubepods")
}

func driverOf(rel string) Driver {
	if strings.HasSuffix(rel, ".slice") {
		return Systemd
	}
	return Cgroupfs
}

// Resolve turns the cgroupsPath of an OCI runtime spec into the path that the
// runtime makes of it: "/a/b" stays, and "a-b.slice:prefix:name" is
// /a.slice/a-b.slice/prefix-name.scope as systemd nests it, in system.slice where
// the slice is left out. "" for what no runtime accepts.
func (l Layout) Resolve(spec string) string {
	rel := spec
	if parts := strings.Split(spec, ":"); len(parts) == 3 && !strings.HasPrefix(spec, "/") {
		rel = expandUnit(parts[0], parts[1], parts[2])
	}
	rel, err := cleanPath(rel)
	if err != nil {
		return ""
	}
	return rel
}

// expandUnit is the path of a systemd unit; "" for what can be none.
func expandUnit(slice, prefix, name string) string {
	at, ok := expandSlice(slice)
	if !ok || name == "" || strings.Contains(prefix+name, "/") {
		return ""
	}
	if strings.HasSuffix(name, ".slice") {
		return path.Join(at, name)
	}
	if prefix != "" {
		name = prefix + "-" + name
	}
	return path.Join(at, name+".scope")
}

// expandSlice nests a slice by its name: a-b.slice is in a.slice, and "-.slice"
// is the root (systemd.slice(5)).
func expandSlice(slice string) (string, bool) {
	if slice == "" {
		slice = "system.slice"
	}
	if slice == "-.slice" {
		return "/", true
	}
	name, ok := strings.CutSuffix(slice, ".slice")
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", false
	}
	at, prefix := "/", ""
	for part := range strings.SplitSeq(name, "-") {
		if part == "" {
			return "", false
		}
		prefix += part
		at = path.Join(at, prefix+".slice")
		prefix += "-"
	}
	return at, true
}
