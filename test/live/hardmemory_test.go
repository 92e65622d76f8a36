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

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// A hard memory threshold kills the right pod, whatever state the runtime is in, without
// waiting for the runtime, and the runtime's books are right in the end.
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
				limit := n.available(policy.AllocatableMemoryAvailable) - headroom
				n.configure(config{
					hard:     thresholds{policy.AllocatableMemoryAvailable: bytes(limit)},
					eviction: map[string]string{"interval": "1s"}, // a loss is noticed when listing
					timeout:  time.Minute,
				})
				s := n.startWith(3)
				mend := c.upset(s, leaky)
				begin := time.Now()
				n.release(leaky)
				if stop := s.stopped("default/leaky"); stop.Result.Method != "direct" || stop.Kind != policy.Hard.String() {
					n.Errorf("stopped %s by %s, want hard and direct", stop.Kind, stop.Result.Method)
				}
				if took := time.Since(begin); took >= time.Minute {
					n.Errorf("stopped after %s, as late as if a call to the runtime had been waited for", took)
				}
				mend()
				n.ended(leaky)
				n.alive(large, small)
			})
		})
	}
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
