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
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

const (
	mib = 1 << 20
	// podsMemory is the limit of the cgroup of all pods.
	podsMemory = 3 << 30
	// patience is how long a condition is waited for that comes in seconds on a quiet
	// machine.
	patience = 3 * time.Minute
)

// node is a lab, with criguard's files.
type node struct {
	*testing.T
	lab      *lab.Lab
	client   *cri.Client
	endpoint string
	dir      string // of the configuration, the history and what is in /run otherwise
	// known are the directories in which criguard sees others of the machine's, such as those of
	// sockets; nil = it sees the machine as it is.
	known map[string]string
}

// newNode is the test binary's lab on a runtime.
func newNode(t *testing.T, runtime string) *node {
	t.Helper()
	l := lab.Shared(t, runtime)
	if err := l.LimitPodsMemory(podsMemory); err != nil {
		t.Fatal(err)
	}
	return onLab(t, l)
}

// onLab prepares criguard's files on a lab.
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

// until waits for something to become true.
func (n *node) until(what string, done func() bool) {
	n.Helper()
	n.within(patience, what, done)
}

func (n *node) within(limit time.Duration, what string, done func() bool) {
	n.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.Fatalf("waited %s in vain for %s", limit, what)
		}
	}
}

// pod runs a pod until the end of the test.
func (n *node) pod(spec lab.PodSpec) *lab.RunningPod {
	n.Helper()
	p, err := n.lab.RunPod(context.Background(), spec)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.lab.RemovePod(ctx, p); err != nil {
			n.Error(err)
		}
	})
	return p
}

// one is a pod's only container.
func one(args ...string) []lab.ContainerSpec {
	return []lab.ContainerSpec{{Name: "main", Args: args, EmptyDirs: map[string]string{"ctl": "/ctl"}}}
}

// hog is a container that has taken so much memory when hogs says so.
func hog(size int64, more ...string) []lab.ContainerSpec {
	return one(append([]string{"hog", "-mib", strconv.FormatInt(size/mib, 10)}, more...)...)
}

// leak is a container that takes memory, at the rate of MiB per second, once it is
// let go with release.
func leak(size int64, rate string, more ...string) []lab.ContainerSpec {
	return hog(size, append([]string{"-rate", rate, "-when", "/ctl/go"}, more...)...)
}

// release lets a leak go.
func (n *node) release(p *lab.RunningPod) {
	n.Helper()
	if err := os.WriteFile(filepath.Join(n.lab.KubeletRoot(), "pods", p.UID, "volumes/kubernetes.io~empty-dir/ctl/go"), nil, 0o600); err != nil {
		n.Fatal(err)
	}
}

// hogs waits until a container of a pod has said that it is done.
func (n *node) hogs(p *lab.RunningPod) {
	n.Helper()
	n.until("pod "+p.Name+" to have its memory", func() bool {
		b, err := os.ReadFile(p.Containers[0].LogPath)
		return err == nil && strings.Contains(string(b), "hog: done")
	})
}

// available is what a signal has now, by a look without the service.
func (n *node) available(s policy.Signal) int64 {
	n.Helper()
	st := ask[guard.Status](n, "status")
	for _, v := range st.Signals {
		if v.Signal == s && v.Status == policy.OK.String() {
			return v.Available
		}
	}
	n.Fatalf("%s is not observed", s)
	return 0
}

// pids are the processes of a cgroup and below.
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

// alive makes sure that every container of the pods runs.
func (n *node) alive(pods ...*lab.RunningPod) {
	n.Helper()
	for _, p := range pods {
		for _, c := range p.Containers {
			if len(n.pids(c.Cgroup)) == 0 {
				n.Errorf("container %s of pod %s does not run", c.Name, p.Name)
			}
		}
	}
}

// ended waits until a pod is over as the runtime sees it, and nothing of it runs:
// no container, no sandbox, no shim; and that no cgroup and no mount is left of it.
func (n *node) ended(p *lab.RunningPod) {
	n.Helper()
	n.until("the sandbox of "+p.Name+" to be not ready", func() bool {
		s, err := n.client.Sandbox(context.Background(), p.SandboxID)
		return err == nil && !s.Ready
	})
	n.until("the processes of "+p.Name+" to be gone", func() bool { return len(n.pids(p.CgroupParent)) == 0 })
	n.until("the shim of "+p.Name+" to be gone", func() bool { return len(n.shims(p)) == 0 })
	n.until("cgroups and mounts of "+p.Name+" to be gone", func() bool {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			n.Fatal(err)
		}
		for _, id := range append(p.ContainerIDs(), p.SandboxID) {
			_, err := os.Stat(n.lab.MemoryCgroupDir(filepath.Join(p.CgroupParent, id)))
			if !errors.Is(err, os.ErrNotExist) || strings.Contains(string(mounts), id) {
				return false
			}
		}
		return true
	})
}

// shims are the processes that name a sandbox on their command line.
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

// killRuntime kills containerd until the test ends or restartRuntime.
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

// hang stops a process of the runtime in its tracks until the test ends or the
// function that it returns is called.
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
