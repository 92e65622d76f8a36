package live_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

const (
	// headroom is how far above its threshold memory.available is before the leak: other
	// programs and the page cache may take some of it.
	headroom = 400 * mib
	// deadWithin is generous: on a quiet machine it takes 20 ms, most of it to give the
	// memory back.
	deadWithin = time.Second
)

// A hard memory threshold kills the right pod within milliseconds, whatever state
// the runtime is in, and the runtime's books are right in the end.
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
		{"shim hangs", func(s *service, p *lab.RunningPod) func() {
			return s.hang(func() error { return s.lab.PauseShim(p.SandboxID) }, func() error { return s.lab.ResumeShim(p.SandboxID) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(n *node) {
				// The largest pod keeps within its request; the smallest does not, and is not worth it.
				large := n.pod(lab.PodSpec{Name: "large", MemoryRequest: 700 * mib, Containers: hog(600 * mib)})
				small := n.pod(lab.PodSpec{Name: "small", Containers: hog(16 * mib)})
				leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "800")})
				n.hogs(large)
				n.hogs(small)
				limit := n.available(policy.MemoryAvailable) - headroom
				n.configure(config{
					hard:     thresholds{policy.MemoryAvailable: bytes(limit)},
					eviction: map[string]string{"interval": "1s"}, // a loss is noticed when listing
				})
				s := n.startWith(3)
				mend := c.upset(s, leaky)
				took := n.leakUntilDead(leaky, limit)
				n.Logf("dead %.1f ms after the threshold was crossed", took.Seconds()*1e3)
				if took > deadWithin {
					n.Errorf("dead after %s, want %s at most", took, deadWithin)
				}
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

// leakUntilDead lets a pod leak and returns how long after memory.available fell
// below limit its processes were dead.
func (n *node) leakUntilDead(p *lab.RunningPod, limit int64) time.Duration {
	n.Helper()
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		n.Fatal(err)
	}
	kernel, err := cgroup.OpenNode(layout, "")
	if err != nil {
		n.Fatal(err)
	}
	defer kernel.Close()
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
	below := func() bool {
		info, err := kernel.MemInfo()
		if err != nil {
			n.Fatal(err)
		}
		m, err := kernel.Memory(info, 0)
		if err != nil {
			n.Fatal(err)
		}
		return info.Total-m.WorkingSet() < limit
	}
	if below() {
		n.Fatal("memory.available fell below the threshold before the leak: something else on this machine took the headroom")
	}
	n.release(p)
	var crossed time.Time
	for deadline := time.Now().Add(patience); len(fds) > 0; {
		if time.Now().After(deadline) {
			n.Fatalf("pod %s is not dead after %s", p.Name, patience)
		}
		if crossed.IsZero() && below() {
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
		crossed = time.Now() // it was dead before this process had looked
	}
	return time.Since(crossed)
}

// restart ends a pod's container and starts another one in its place, as a kubelet does:
// the runtime is not asked for it before it is next listed.
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

// stranger makes the cgroup of a pod that the runtime has not told of, with a
// process in it, until the end of the test.
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
