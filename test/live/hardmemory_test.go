package live_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

const (
	// headroom is how far the pods' memory is above its threshold before a leak.
	headroom = 400 * mib
	// hanging is the timeout of what hangs in a test. A kill takes 20 ms on a quiet machine, mostly to free
	// the memory; one that takes deadWithin has waited for what hangs.
	hanging    = "1m"
	deadWithin = 40 * time.Second
)

// A hard memory threshold kills the right pod at once in any state of the runtime, and the runtime's
// state is correct in the end.
func TestHardMemory(t *testing.T) {
	for _, c := range []struct {
		name  string
		upset func(*service, *lab.RunningPod) (mend func())
	}{
		{"runtime is up", func(*service, *lab.RunningPod) func() { return func() {} }},
		{"runtime is down", func(s *service, _ *lab.RunningPod) func() {
			s.killRuntime()
			s.until("the loss to be noticed", func() bool { return !s.status().Runtime.Up })
			return s.restartRuntime
		}},
		{"runtime hangs", func(s *service, _ *lab.RunningPod) func() {
			return s.hang(s.lab.PauseContainerd, s.lab.ResumeContainerd)
		}},
		{"runtime hangs and a pod is new", func(s *service, _ *lab.RunningPod) func() {
			goOn := s.hang(s.lab.PauseContainerd, s.lab.ResumeContainerd)
			s.stranger()
			return goOn
		}},
		{"container restarted", func(s *service, p *lab.RunningPod) func() {
			s.restart(p)
			return func() {}
		}},
		{"process in nested cgroups", func(s *service, p *lab.RunningPod) func() {
			s.nest(p, 80)
			return func() {}
		}},
		{"shim hangs", func(s *service, p *lab.RunningPod) func() {
			return s.hang(func() error { return s.lab.PauseShim(p.SandboxID) }, func() error { return s.lab.ResumeShim(p.SandboxID) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(n *node) {
				// The largest pod stays within its request. The smallest exceeds its own, but
				// stopping it would free too little.
				large := n.pod(lab.PodSpec{Name: "large", MemoryRequest: 700 * mib, Containers: hog(600 * mib)})
				small := n.pod(lab.PodSpec{Name: "small", Containers: hog(16 * mib)})
				leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "800")})
				n.hogs(large)
				n.hogs(small)
				conf := config{
					eviction: map[string]string{"interval": "1s"}, // a listing detects the loss
					timeout:  hanging,                             // no kill may wait for a hanging runtime
				}
				n.configure(conf)
				s := n.startWith(3)
				mend := c.upset(s, leaky)
				n.leakUntilDead(leaky, s.arm(conf))
				if stop := s.stopped("default/leaky"); stop.Result.Method != "direct" || stop.Kind != policy.Hard.String() {
					n.Errorf("stopped %s by %s, want hard and direct", stop.Kind, stop.Result.Method)
				}
				mend()
				n.ended(leaky)
				n.alive(large, small)
			})
		})
	}
}

// What a stopped pod wrote to /dev/shm is freed with the stop, on every runtime.
func TestHardMemoryFreesSharedMemory(t *testing.T) {
	onEach(t, func(n *node) {
		shared := lab.ContainerSpec{Name: "shared", Args: []string{"fill", "-path", "/dev/shm/fill", "-mib", "48"}}
		large := n.pod(lab.PodSpec{Name: "large", Containers: append(hog(128*mib), shared)})
		small := n.pod(lab.PodSpec{Name: "small", Containers: hog(16 * mib)})
		n.hogs(large)
		n.hogs(small)
		gauge := n.gauge(policy.AllocatableMemoryAvailable)
		n.until("the files in /dev/shm", func() bool { return n.sharedMemory(large) >= 48*mib })
		before := gauge()
		n.configure(config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(before + 100*mib)}})
		s := n.startWith(2)
		if stop := s.stopped("default/large"); stop.Result.Method != "direct" {
			n.Errorf("stopped by %s, want direct", stop.Result.Method)
		}
		n.ended(large)
		n.until("the memory of both containers to be free", func() bool { return gauge() >= before+170*mib })
		n.alive(small)
	})
}

// On a node whose root is in memory, what a stopped pod wrote to its layer is freed with the stop, and no other pod is stopped for it.
func TestHardMemoryFreesLayersInMemory(t *testing.T) {
	for _, runtime := range lab.Runtimes() {
		t.Run("containerd-"+runtime, func(t *testing.T) {
			n := newDisk(t, runtime)
			if err := n.lab.LimitPodsMemory(podsMemory); err != nil {
				t.Fatal(err)
			}
			writer := n.pod(lab.PodSpec{Name: "writer", Containers: one("fill", "-mib", "200")})
			small := n.pod(lab.PodSpec{Name: "small", Containers: hog(48 * mib)})
			n.hogs(small)
			gauge := n.gauge(policy.AllocatableMemoryAvailable)
			n.until("the files in the layer", func() bool { return n.sharedMemory(writer) >= 200*mib })
			before := gauge()
			n.configure(config{hard: thresholds{policy.AllocatableMemoryAvailable: bytes(before + 100*mib)}})
			s := n.startWith(2)
			s.stopped("default/writer")
			n.until("the memory of the layer to be free", func() bool { return gauge() >= before+190*mib })
			n.until("the threshold to be met no more", func() bool { return len(s.met()) == 0 })
			s.stopped("default/writer") // checks that this was the only stop
			n.alive(small)
		})
	}
}

// sharedMemory returns a pod's memory in files, in bytes.
func (n *node) sharedMemory(p *lab.RunningPod) int64 {
	n.Helper()
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		n.Fatal(err)
	}
	shared, err := layout.SharedMemory(p.CgroupParent)
	if err != nil {
		n.Fatal(err)
	}
	return shared
}

// arm sets the hard threshold of the pods' memory relative to what is available now.
func (s *service) arm(c config) (limit int64) {
	s.Helper()
	limit = s.gauge(policy.AllocatableMemoryAvailable)() - headroom
	c.hard = thresholds{policy.AllocatableMemoryAvailable: bytes(limit)}
	s.configure(c)
	s.reload()
	s.until("the threshold", func() bool { return hard(s.status(), policy.AllocatableMemoryAvailable) == limit })
	return limit
}

// gauge reads a memory signal from the kernel, without criguard.
func (n *node) gauge(signal policy.Signal) (available func() int64) {
	n.Helper()
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		n.Fatal(err)
	}
	kernel, err := cgroup.OpenNode(layout, n.lab.PodsCgroup())
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(kernel.Close)
	return func() int64 {
		if signal == policy.AllocatableMemoryAvailable {
			m, err := kernel.PodsMemory()
			if err != nil {
				n.Fatal(err)
			}
			return m.Limit - m.WorkingSet()
		}
		info, err := kernel.MemInfo()
		if err != nil {
			n.Fatal(err)
		}
		m, err := kernel.Memory(info, 0)
		if err != nil {
			n.Fatal(err)
		}
		return info.Total - m.WorkingSet()
	}
}

// leakUntilDead lets a pod leak until its processes are dead. The test fails if this takes as long, from the
// fall of the pods' memory below limit, as if criguard had waited for something that hangs.
func (n *node) leakUntilDead(p *lab.RunningPod, limit int64) {
	n.Helper()
	available := n.gauge(policy.AllocatableMemoryAvailable)
	var fds []unix.PollFd
	for _, pid := range n.pids(p.Containers[0].Cgroup) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			n.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if len(fds) == 0 {
		n.Fatalf("pod %s does not run", p.Name)
	}
	if now := available(); now < limit {
		n.Fatalf("the pods' memory is %d MiB below the threshold before the leak", (limit-now)/mib)
	}
	n.release(p)
	var crossed time.Time
	for deadline := time.Now().Add(patience); len(fds) > 0; {
		if time.Now().After(deadline) {
			n.Fatalf("pod %s is not dead after %s", p.Name, patience)
		}
		if crossed.IsZero() && available() < limit {
			crossed = time.Now()
		}
		// A pidfd is readable once the process has ended (pidfd_open(2)).
		switch ended, err := unix.Poll(fds[:1], 1); {
		case err != nil && err != unix.EINTR:
			n.Fatal(err)
		case ended > 0:
			fds = fds[1:]
		}
	}
	if crossed.IsZero() {
		crossed = time.Now() // it died before this process had checked
	}
	took := time.Since(crossed)
	n.Logf("dead %.1f ms after the threshold was crossed", took.Seconds()*1e3)
	if took >= deadWithin {
		n.Errorf("dead after %s, as late as if criguard had waited for something that hangs", took)
	}
}

// nest moves a pod's processes that many cgroups below its container's.
func (n *node) nest(p *lab.RunningPod, levels int) {
	n.Helper()
	pids := n.pids(p.Containers[0].Cgroup)
	dir := filepath.Join(n.lab.MemoryCgroupDir(p.Containers[0].Cgroup), strings.Repeat("nested/", levels))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.Fatal(err)
	}
	for _, pid := range pids {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			n.Fatal(err)
		}
	}
}

// restart ends a pod's container and starts another one in its place, like a kubelet. criguard does
// not ask the runtime for the new one until the next listing.
func (n *node) restart(p *lab.RunningPod) {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	old := p.Containers[0]
	if err := n.lab.KillContainer(ctx, old); err != nil {
		n.Fatal(err)
	}
	next := old.ContainerSpec
	next.Attempt++
	c, err := n.lab.RunContainer(ctx, p, next)
	if err != nil {
		n.Fatal(err)
	}
	p.Containers[0], p.Containers = c, p.Containers[:1]
}

// stranger creates, until the end of the test, a pod cgroup with a process that the runtime does
// not list.
func (n *node) stranger() {
	n.Helper()
	dir := n.lab.MemoryCgroupDir(filepath.Join(n.lab.PodsCgroup(), "besteffort/pod00000000-0000-4000-8000-000000000000"))
	leaf := filepath.Join(dir, "leaf")
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		n.Fatal(err)
	}
	cmd := exec.CommandContext(context.Background(), built.workload, "pause")
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		n.until("the stranger's cgroup to be removed", func() bool {
			return unix.Rmdir(leaf) != unix.EBUSY && unix.Rmdir(dir) != unix.EBUSY
		})
	})
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		n.Fatal(err)
	}
}
