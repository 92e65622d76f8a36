package scenario

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/criguard/criguard/test/lab"
)

// Machine is what a node consists of. The agent's is the machine that the agent runs on; test/world simulates one.
type Machine interface {
	// Shell runs a command as root and returns its output.
	Shell(command string) (string, error)
	// Write writes a file.
	Write(path, text string) error
	// RunPod starts a pod, RemovePod stops and removes one.
	RunPod(ctx context.Context, spec lab.PodSpec) (*lab.RunningPod, error)
	RemovePod(ctx context.Context, p *lab.RunningPod) error
	// Serves reports whether the runtime answers.
	Serves(ctx context.Context) bool
	// PID returns the process ID of a container.
	PID(ctx context.Context, containerID string) (int, error)
	// Processes returns the processes in a cgroup, nil if the cgroup does not exist.
	Processes(cgroup string) []int
	// KernelKills returns the number of OOM kills by the kernel since boot, -1 if it is unknown.
	KernelKills() int
	// Remains lists what exists of pods: cgroups, shims, and containers in the runtime.
	Remains() ([]string, error)
}

// host is the machine that this program runs on. Its Lab is nil until the runtime is set up.
type host struct{ *lab.Lab }

var _ Machine = host{}

// Shell implements [Machine].
func (host) Shell(command string) (string, error) { return shell(command) }

// Write implements [Machine].
func (host) Write(path, text string) error { return write(path, text) }

// Processes implements [Machine].
func (h host) Processes(cgroup string) []int {
	text, err := os.ReadFile(filepath.Join(h.MemoryCgroupDir(cgroup), "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// KernelKills implements [Machine]. It reads oom_kill from /proc/vmstat.
func (host) KernelKills() int {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return -1
	}
	_, after, _ := strings.Cut(string(text), "\noom_kill ")
	count, _, _ := strings.Cut(after, "\n")
	kills, err := strconv.Atoi(count)
	if err != nil {
		return -1
	}
	return kills
}

// Remains implements [Machine].
func (h host) Remains() ([]string, error) {
	found, _ := filepath.Glob(h.MemoryCgroupDir(h.PodsCgroup()) + "/*/*pod*")
	for _, list := range []string{"pgrep -a containerd-shim || true", "ctr -n k8s.io containers list -q"} {
		out, err := shell(list)
		if err != nil {
			return nil, err
		}
		found = append(found, strings.Split(out, "\n")...)
	}
	return found, nil
}
