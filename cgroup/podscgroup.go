package cgroup

import (
	"fmt"
	"path"
	"strings"
)

// Driver is the kubelet's cgroup driver, recognized by the names of the pods' cgroups: under systemd
// they end in ".slice" and repeat their parents' names.
type Driver string

// The drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// podsDepth is how many levels deep FindPods searches: with --cgroup-root, the pods cgroup is below
// that cgroup.
const podsDepth = 3

// FindPods finds the cgroup that holds all pods of a kubelet. Its name is, or ends in, kubepods or
// kubepods.slice. After a change of driver there are two: FindPods prefers one with processes, then the
// one nearest to the root, then the first path in sort order. It returns ErrGone if it finds no such
// cgroup (yet).
func (l Layout) FindPods() (rel string, driver Driver, err error) {
	var found []string
	level := []string{"/"}
	for range podsDepth {
		var next []string
		for _, parent := range level {
			names, err := l.Children(parent)
			if err != nil {
				continue // removed in the meantime, or not readable for us
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

// PodsCgroupOf derives the pods cgroup from the path of a pod's cgroup: the match nearest to the root.
// It returns "" if no part of the path matches.
func PodsCgroupOf(pod string) string {
	at := "/"
	for name := range strings.SplitSeq(strings.Trim(pod, "/"), "/") {
		if at = path.Join(at, name); isPodsCgroup(name) {
			return at
		}
	}
	return ""
}

// isPodsCgroup reports whether a name is that of the pods cgroup. With the systemd driver, the names of
// the parent slices come before the kubelet's own.
func isPodsCgroup(name string) bool {
	return strings.HasSuffix(strings.TrimSuffix(name, ".slice"), "kubepods")
}

func driverOf(rel string) Driver {
	if strings.HasSuffix(rel, ".slice") {
		return Systemd
	}
	return Cgroupfs
}

// Resolve converts the cgroupsPath of an OCI runtime spec to the path that the runtime creates. It
// leaves "/a/b" as it is. "a-b.slice:prefix:name" becomes /a.slice/a-b.slice/prefix-name.scope, as
// systemd nests it; the default slice is system.slice. It returns "" for a path that no runtime accepts,
// and for "a/b": each runtime creates it below another cgroup (runc below its own on cgroup v1, beside
// it on v2).
func (l Layout) Resolve(spec string) string {
	rel := spec
	if parts := strings.Split(spec, ":"); len(parts) == 3 && !strings.HasPrefix(spec, "/") {
		rel = expandUnit(parts[0], parts[1], parts[2])
	}
	if !strings.HasPrefix(rel, "/") {
		return ""
	}
	rel, err := cleanPath(rel)
	if err != nil {
		return ""
	}
	return rel
}

// expandUnit returns the path of a systemd unit, "" if the name is invalid.
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

// expandSlice returns the path of a slice: a-b.slice is below a.slice, and "-.slice" is the root
// (systemd.slice(5)).
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
