package live_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

const (
	mib = 1 << 20
	// podsMemory is the limit of the cgroup of all pods.
	podsMemory = 3 << 30
	patience   = harness.Patience
)

// node is a lab together with criguard's files.
type node struct {
	*testing.T
	lab      *lab.Lab
	client   *cri.Client
	endpoint string
	dir      string // for the configuration, the history, and files that are usually in /run
	// known maps directories that criguard sees to other ones on the machine, such as those of
	// sockets. nil shows the machine as it is.
	known map[string]string
}

// newNode returns a node on the test binary's lab for a runtime.
func newNode(t *testing.T, runtime string) *node {
	t.Helper()
	l := lab.Shared(t, runtime)
	if err := l.LimitPodsMemory(podsMemory); err != nil {
		t.Fatal(err)
	}
	return onLab(t, l)
}

// onLab prepares criguard's files for a lab.
func onLab(t *testing.T, l *lab.Lab) *node {
	t.Helper()
	t.Logf("runs on containerd %s", l.Version())
	n := &node{T: t, lab: l, endpoint: l.Endpoint(), dir: t.TempDir()}
	var err error
	if n.client, err = cri.Dial(l.Endpoint(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.client.Close() })
	n.configure(config{})
	return n
}

// onEach runs a test on every runtime.
func onEach(t *testing.T, test func(*node)) {
	for _, runtime := range lab.Runtimes() {
		t.Run("containerd-"+runtime, func(t *testing.T) { test(newNode(t, runtime)) })
	}
}

// until polls until a condition is true.
func (n *node) until(what string, done func() bool) {
	n.Helper()
	n.within(patience, what, done)
}

func (n *node) within(limit time.Duration, what string, done func() bool) {
	n.Helper()
	n.harness().Within(limit, what, done)
}

// pod runs a pod until the end of the test.
func (n *node) pod(spec lab.PodSpec) *lab.RunningPod {
	n.Helper()
	return harness.RunPod(n.T, n.lab, spec)
}

// one returns a pod's only container.
func one(args ...string) []lab.ContainerSpec {
	return []lab.ContainerSpec{{Name: "main", Args: args, EmptyDirs: map[string]string{"ctl": "/ctl"}}}
}

// hog returns a container that takes the given memory; hogs waits until it has.
func hog(size int64, more ...string) []lab.ContainerSpec {
	return one(append([]string{"hog", "-mib", strconv.FormatInt(size/mib, 10)}, more...)...)
}

// leak returns a container that takes memory, at the given rate in MiB per second, after a call to
// release.
func leak(size int64, rate string, more ...string) []lab.ContainerSpec {
	return hog(size, append([]string{"-rate", rate, "-when", "/ctl/go"}, more...)...)
}

// release starts a leak.
func (n *node) release(p *lab.RunningPod) {
	n.Helper()
	if err := os.WriteFile(filepath.Join(n.lab.KubeletRoot(), "pods", p.UID, "volumes/kubernetes.io~empty-dir/ctl/go"), nil, 0o600); err != nil {
		n.Fatal(err)
	}
}

// hogs waits until a pod's container reports that it has taken its memory.
func (n *node) hogs(p *lab.RunningPod) {
	n.Helper()
	n.until("pod "+p.Name+" to have its memory", func() bool {
		b, err := os.ReadFile(p.Containers[0].LogPath)
		return err == nil && strings.Contains(string(b), "hog: done")
	})
}

// available returns the amount of a signal, read without the service.
func (n *node) available(s policy.Signal) int64 {
	n.Helper()
	st := ask[api.Status](n, "status")
	for _, v := range st.Signals {
		if v.Signal == s && v.Status == policy.OK.String() {
			return v.Available
		}
	}
	n.Fatalf("%s is not observed", s)
	return 0
}

// pids returns the processes in a cgroup and below.
func (n *node) pids(cgroup string) []int {
	n.Helper()
	var all []int
	err := filepath.WalkDir(n.lab.MemoryCgroupDir(cgroup), func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return ignoreGone(err)
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for field := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return err
			}
			all = append(all, pid)
		}
		return ignoreGone(err)
	})
	if err != nil {
		n.Fatal(err)
	}
	return all
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// alive checks that every container of the pods is running.
func (n *node) alive(pods ...*lab.RunningPod) {
	n.Helper()
	for _, p := range pods {
		for _, c := range p.Containers {
			if len(n.pids(c.Cgroup)) == 0 {
				n.Errorf("innocent pod: container %s of pod %s does not run", c.Name, p.Name)
			}
		}
	}
}

// ended waits until the runtime reports a pod as stopped and nothing is left of it: no container,
// sandbox, shim, cgroup or mount.
func (n *node) ended(p *lab.RunningPod) {
	n.Helper()
	n.until("the sandbox of "+p.Name+" to be not ready", func() bool {
		s, err := n.client.Sandbox(context.Background(), p.SandboxID)
		return err == nil && !s.Ready
	})
	n.until("the processes of "+p.Name+" to be gone", func() bool { return len(n.pids(p.CgroupParent)) == 0 })
	n.until("the shim of "+p.Name+" to be gone", func() bool { return len(n.shims(p)) == 0 })
	n.until("cgroups and mounts of "+p.Name+" to be gone", func() bool { return len(n.remains(p)) == 0 })
}

// remains returns the cgroups and mounts of a pod's containers. The /dev/shm of a sandbox whose own container was killed
// stays mounted on containerd 2 until the sandbox is removed; it does not count while it is empty.
func (n *node) remains(p *lab.RunningPod) (found []string) {
	n.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.Fatal(err)
	}
	for _, id := range append(p.ContainerIDs(), p.SandboxID) {
		dir := n.lab.MemoryCgroupDir(filepath.Join(p.CgroupParent, id))
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			found = append(found, dir)
		}
		for line := range strings.Lines(string(mounts)) {
			fields := strings.Fields(line)
			if len(fields) < 5 || !strings.Contains(line, id) {
				continue
			}
			entries, err := os.ReadDir(fields[4])
			if filepath.Base(fields[4]) != "shm" || err != nil || len(entries) > 0 {
				found = append(found, fields[4])
			}
		}
	}
	return found
}

// shims returns the processes with a sandbox's ID on their command line.
func (n *node) shims(p *lab.RunningPod) []int {
	n.Helper()
	var found []int
	for _, pid := range n.pids(n.lab.Cgroup()) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err == nil && strings.Contains(string(b), p.SandboxID) {
			found = append(found, pid)
		}
	}
	return found
}

// killRuntime kills containerd. It stays down until restartRuntime or the end of the test.
func (n *node) killRuntime() {
	n.Helper()
	if err := n.lab.KillContainerd(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		if n.lab.ContainerdPID() == 0 {
			n.restartRuntime()
		}
	})
}

func (n *node) restartRuntime() {
	n.Helper()
	if err := n.lab.RestartContainerd(context.Background()); err != nil {
		n.Error(err)
	}
}

// hang freezes a process of the runtime until the returned function is called or the test ends.
func (n *node) hang(pause, resume func() error) (goOn func()) {
	n.Helper()
	if err := pause(); err != nil {
		n.Fatal(err)
	}
	hangs := true
	goOn = func() {
		if !hangs {
			return
		}
		hangs = false
		if err := resume(); err != nil {
			n.Error(err)
		}
	}
	n.Cleanup(goOn)
	return goOn
}
