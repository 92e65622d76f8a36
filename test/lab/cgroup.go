package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup/mountinfo"
)

// cgroups is one cgroup path in every hierarchy of the machine, v1 and v2 (cgroups(7)).
type cgroups struct {
	path        string // from the root of each hierarchy, such as "/criguard-lab-4711-1"
	hierarchies []hierarchy
}

// hierarchy is one mounted cgroup tree.
type hierarchy struct {
	dir    string
	v2     bool
	memory bool // holds the memory controller
}

// findCgroups looks up where the hierarchies are mounted.
func findCgroups(path string) (cgroups, error) {
	all, err := mountinfo.Read()
	if err != nil {
		return cgroups{}, err
	}
	c := cgroups{path: path, hierarchies: hierarchiesOf(all)}
	if c.main().dir == "" {
		return cgroups{}, errors.New("find memory cgroup: no hierarchy with the memory controller is mounted")
	}
	return c, nil
}

// hierarchiesOf picks the first mount of each whole cgroup tree: a tree may be mounted more than once.
func hierarchiesOf(all []mountinfo.Mount) []hierarchy {
	var found []hierarchy
	seen := map[string]bool{}
	onlyV2 := !slices.ContainsFunc(all, func(m mountinfo.Mount) bool {
		return m.Type == "cgroup" && slices.Contains(m.Options, "memory")
	})
	for _, m := range all {
		v2 := m.Type == "cgroup2"
		if (m.Type != "cgroup" && !v2) || m.Root != "/" || seen[m.Device] {
			continue
		}
		seen[m.Device] = true
		found = append(found, hierarchy{dir: m.Point, v2: v2, memory: v2 && onlyV2 || slices.Contains(m.Options, "memory")})
	}
	return found
}

// main returns the hierarchy for placing and finding processes: the one with the memory controller.
func (c cgroups) main() hierarchy {
	for _, h := range c.hierarchies {
		if h.memory {
			return h
		}
	}
	return hierarchy{}
}

// dir returns the directory of the cgroup below c's own in the main hierarchy.
func (c cgroups) dir(below string) string { return filepath.Join(c.main().dir, c.path, below) }

// make creates a cgroup below c's own in the main hierarchy, with the memory controller on.
func (c cgroups) make(below string) error {
	dir := c.dir(below)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if !c.main().v2 {
		return nil
	}
	// On v2 a cgroup has only the controllers that its parent delegates.
	for parent := c.main().dir; ; {
		for _, controller := range []string{"+memory", "+pids"} {
			control := filepath.Join(parent, "cgroup.subtree_control")
			if err := os.WriteFile(control, []byte(controller), 0); err != nil {
				return fmt.Errorf("enable controller %s: %w", controller, err)
			}
		}
		rest, _ := filepath.Rel(parent, dir)
		next, deeper, ok := strings.Cut(rest, "/")
		if !ok || deeper == "" {
			return nil
		}
		parent = filepath.Join(parent, next)
	}
}

// limitMemory sets the memory limit in bytes of the cgroup below c's own.
func (c cgroups) limitMemory(below string, limit int64) error {
	name := "memory.limit_in_bytes"
	if c.main().v2 {
		name = "memory.max"
	}
	if err := os.WriteFile(filepath.Join(c.dir(below), name), strconv.AppendInt(nil, limit, 10), 0); err != nil {
		return fmt.Errorf("limit memory: %w", err)
	}
	return nil
}

// dirs returns every directory of c's own cgroup, in all hierarchies, parents first. It skips
// cgroups that disappear during the walk.
func (c cgroups) dirs() []string {
	var dirs []string
	for _, h := range c.hierarchies {
		_ = filepath.WalkDir(filepath.Join(h.dir, c.path), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
	}
	return dirs
}

// processes returns the PIDs in c's own cgroup and below, in any hierarchy, in ascending order.
func (c cgroups) processes() []int {
	var pids []int
	for _, dir := range c.dirs() {
		pids = append(pids, readPIDs(filepath.Join(dir, "cgroup.procs"))...)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// holds reports whether the process is in c's own cgroup, in any hierarchy.
func (c cgroups) holds(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) == 3 && isBelow(fields[2], c.path) {
			return true
		}
	}
	return false
}

// signal sends sig to the process if it is in c's own cgroup. It opens the pidfd before the check,
// so it never hits a process that has reused the PID.
func (c cgroups) signal(pid int, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !c.holds(pid) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

// killAll kills every process in c's own cgroup and returns when all are gone.
func (c cgroups) killAll(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		pids := c.processes()
		for _, pid := range pids {
			if err := c.signal(pid, unix.SIGKILL); err != nil {
				return false, err
			}
		}
		if len(pids) > 0 {
			return false, fmt.Errorf("kill processes %v: still there", pids)
		}
		return true, nil
	})
}

// remove removes c's own cgroup and everything below from all hierarchies. A cgroup stays busy for
// a moment after its last process.
func (c cgroups) remove(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		var errs []error
		for _, dir := range slices.Backward(c.dirs()) {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
			}
		}
		return len(errs) == 0, errors.Join(errs...)
	})
}

func readPIDs(path string) []int {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stateIn returns the state in a stat file (proc_pid_stat(5)): 'T' is stopped, 'Z' a zombie, 0
// gone.
func stateIn(path string) byte {
	stat, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	// The state follows the command's name, which is in parentheses and may contain parentheses
	// itself.
	after := stat[bytes.LastIndexByte(stat, ')')+1:]
	if len(after) < 2 {
		return 0
	}
	return after[1]
}
