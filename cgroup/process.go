package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
)

// OfPID is the cgroup of a process, in the hierarchy that pods are looked up in.
// ErrGone when it has ended. What is outside of this process's cgroup namespace, and
// so not below the root that is mounted here, is an error.
func (l Layout) OfPID(pid int) (string, error) {
	b, err := os.ReadFile(filepath.Join(string(l.proc), strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", fmt.Errorf("find cgroup of process %d: %w", pid, gone(err))
	}
	rel, ok := parseProcessCgroup(b, l.tree)
	if !ok {
		return "", fmt.Errorf("find cgroup of process %d: none listed for %q", pid, l.tree)
	}
	if path.Clean(rel) != rel {
		return "", fmt.Errorf("find cgroup of process %d: %s is outside of the cgroup namespace", pid, rel)
	}
	return rel, nil
}

// parseProcessCgroup finds the cgroup that /proc/<pid>/cgroup gives for a v1
// controller, "4:memory:/a", or with controller "" for v2, "0::/a" (cgroups(7)).
func parseProcessCgroup(b []byte, controller string) (rel string, ok bool) {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		parts := bytes.SplitN(line, []byte(":"), 3)
		if len(parts) != 3 || len(parts[2]) == 0 || parts[2][0] != '/' {
			continue
		}
		if controller == "" {
			ok = string(parts[0]) == "0" && len(parts[1]) == 0
		} else {
			ok = slices.ContainsFunc(bytes.Split(parts[1], []byte(",")), func(c []byte) bool { return string(c) == controller })
		}
		if ok {
			return string(parts[2]), true
		}
	}
	return "", false
}
