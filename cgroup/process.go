package cgroup

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"
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

// OOMScoreAdj is what the kernel's OOM killer adds to a process's badness, −1000 … 1000
// (proc_pid_oom_score_adj(5)). ErrGone when it has ended.
func (l Layout) OOMScoreAdj(pid int) (int64, error) {
	b, err := os.ReadFile(filepath.Join(string(l.proc), strconv.Itoa(pid), "oom_score_adj"))
	if err != nil {
		return 0, fmt.Errorf("read oom_score_adj of process %d: %w", pid, gone(err))
	}
	adj, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read oom_score_adj of process %d: %w", pid, err)
	}
	return adj, nil
}

// Namespaced reports whether this process is in a cgroup or PID namespace of its own, as a
// container's may be: [Layout.OfPID] does not tell its cgroup then. The lists of processes
// in the node's cgroups do, with the PID that it has itself. Where procfs does not tell, it
// is not.
func Namespaced(proc Proc) bool {
	for name, first := range map[string]string{"cgroup": "cgroup:[4026531835]", "pid": "pid:[4026531836]"} { // <linux/proc_ns.h>
		if ns, err := os.Readlink(filepath.Join(string(proc), "self/ns", name)); err == nil && ns != first {
			return true
		}
	}
	return false
}

// ProcessStart is when a process was started, in boot time, to 10 ms (proc(5), stat).
// ErrGone when it has ended.
func ProcessStart(proc Proc, pid int) (time.Duration, error) {
	b, err := os.ReadFile(filepath.Join(string(proc), strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("find start of process %d: %w", pid, gone(err))
	}
	start, ok := parseProcessStart(b)
	if !ok {
		return 0, fmt.Errorf("find start of process %d: malformed stat", pid)
	}
	return start, nil
}

// parseProcessStart finds the start of a process in /proc/<pid>/stat, its 22nd field,
// in ticks of 10 ms. The second is the command in parentheses, which may hold
// anything.
func parseProcessStart(b []byte) (time.Duration, bool) {
	const tick, afterCommand = 10 * time.Millisecond, 22 - 3
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= afterCommand {
		return 0, false
	}
	ticks, err := strconv.ParseInt(string(fields[afterCommand]), 10, 64)
	if err != nil || ticks < 0 || ticks > math.MaxInt64/int64(tick) {
		return 0, false
	}
	return time.Duration(ticks) * tick, true
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
