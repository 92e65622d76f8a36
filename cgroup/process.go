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

// OfPID returns the cgroup of a process in the hierarchy in which pods are looked up. It returns
// ErrGone if the process has ended, and an error if its cgroup is outside this process's cgroup
// namespace, and thus not below the mounted root.
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

// OOMScoreAdj returns the value that the kernel's OOM killer adds to a process's badness, −1000 … 1000
// (proc_pid_oom_score_adj(5)). It returns ErrGone if the process has ended.
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

// Namespaced reports whether this process has a cgroup or PID namespace of its own, as in a container.
// [Layout.OfPID] then does not return its real cgroup. But [Layout.Procs] of that cgroup lists it,
// under the PID that it sees itself. Namespaced returns false if procfs does not show the namespaces.
func Namespaced(proc Proc) bool {
	return OwnPIDs(proc) || inOwn(proc, "cgroup", "cgroup:[4026531835]")
}

// OwnPIDs reports whether this process has a PID namespace of its own, as in a container without the host's.
func OwnPIDs(proc Proc) bool { return inOwn(proc, "pid", "pid:[4026531836]") }

// inOwn reports whether this process is in another namespace than the first of its kind, which has a
// fixed number (<linux/proc_ns.h>).
func inOwn(proc Proc, kind, first string) bool {
	ns, err := os.Readlink(filepath.Join(string(proc), "self/ns", kind))
	return err == nil && ns != first
}

// ProcessStart returns when a process was started, as time since boot with a resolution of 10 ms
// (proc(5), stat). It returns ErrGone if the process has ended.
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

// parseProcessStart parses the start of a process from /proc/<pid>/stat: the 22nd field, in ticks of 10
// ms. The second field is the command in parentheses, which may contain any character.
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

// Resident returns the resident memory of this process in bytes (proc_pid_statm(5)), 0 if it is unknown.
func Resident(proc Proc) int64 {
	var size, pages int64
	b, _ := os.ReadFile(filepath.Join(string(proc), "self/statm"))
	_, _ = fmt.Sscan(string(b), &size, &pages)
	return pages * int64(os.Getpagesize())
}

// parseProcessCgroup finds the path that /proc/<pid>/cgroup lists for a v1 controller ("4:memory:/a"),
// or for v2 if controller is "" ("0::/a"; cgroups(7)).
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

// ProcessNamed returns one of these names that a running process has, "" if there is no such process.
// It compares the command name and the base name of the executable. It returns an error if it cannot
// list the processes.
func ProcessNamed(proc Proc, names ...string) (string, error) {
	dir, err := os.Open(string(proc))
	if err != nil {
		return "", fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close() //nolint:errcheck // only read
	entries, err := dir.Readdirnames(-1)
	if err != nil {
		return "", fmt.Errorf("list processes: %w", err)
	}
	for _, pid := range entries {
		if pid[0] < '1' || pid[0] > '9' {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(string(proc), pid, "comm"))
		if err != nil {
			continue // the process has ended
		}
		line, _ := os.ReadFile(filepath.Join(string(proc), pid, "cmdline"))
		executable, _, _ := bytes.Cut(line, []byte{0})
		for _, name := range names {
			if string(bytes.TrimSpace(comm)) == name || path.Base(string(executable)) == name {
				return name, nil
			}
		}
	}
	return "", nil
}
