package live_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// The directories of the containerd sockets. The one of k3s takes precedence over the
// distribution's.
const (
	ofK3s          = "/run/k3s/containerd"
	ofDistribution = "/run/containerd"
)

// With two runtimes on a node, criguard uses the one with the pods: no matter which starts first or
// takes precedence, and while it restarts.
func TestTwoRuntimes(t *testing.T) {
	t.Run("pods in the one that ranks first", func(t *testing.T) {
		n, idle := twoRuntimes(t, lab.Containerd2, ofK3s, lab.Containerd1, ofDistribution)
		n.keepsToThePods(idle, ofK3s, ofDistribution)
	})
	t.Run("pods in the other one", func(t *testing.T) {
		n, idle := twoRuntimes(t, lab.Containerd1, ofDistribution, lab.Containerd2, ofK3s)
		n.keepsToThePods(idle, ofDistribution, ofK3s)
	})
}

// keepsToThePods starts a runtime with pods and one without, one after the other. Then it restarts
// the one with pods and lets a pod leak.
func (n *node) keepsToThePods(idle *node, with, without string) {
	n.Helper()
	calm := n.pod(lab.PodSpec{Name: "calm", Containers: hog(64 * mib)})
	leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "400")})
	n.hogs(calm)
	n.configure(config{
		hard:     thresholds{policy.AllocatableMemoryAvailable: bytes(podsMemory - 512*mib)},
		eviction: map[string]string{"interval": "500ms"}, // a listing detects the loss
	})

	// Simulate a boot in which the other runtime starts first.
	n.killRuntime()
	n.forgetSocket()
	s := n.start()
	s.untilAt(without, 0)
	n.restartRuntime()
	s.untilAt(with, 2)
	s.showsSocket(with)
	if got := s.events(systemd.EventRuntimeUp); len(got) != 2 || !strings.Contains(got[1], "endpoint="+socketIn(with)+" ") {
		n.Errorf("told of the runtimes that answer: %q, want the second to be at %s", got, with)
	}

	// The pods keep running while their runtime is down; the other runtime has no pods.
	n.killRuntime()
	n.until("the loss to be noticed", func() bool { return !s.status().Runtime.Up })
	lost := s.status().Uptime
	n.until("several listings to fail", func() bool {
		s.keptAt(with)
		return time.Duration(s.status().Uptime-lost) > 3*time.Second
	})
	n.restartRuntime()
	n.until("the pods to be listed again", func() bool {
		s.keptAt(with)
		return s.status().Runtime.Up
	})

	// Simulate a boot in which the pods' runtime starts first.
	s.End()
	idle.killRuntime()
	idle.forgetSocket()
	s = n.startWith(2)
	idle.restartRuntime()
	both := s.status().Uptime
	n.until("several listings with both", func() bool {
		s.keptAt(with)
		return time.Duration(s.status().Uptime-both) > 2*time.Second
	})
	s.showsSocket(with)

	n.alive(calm, leaky) // checks that nothing else on the machine has killed them
	n.release(leaky)
	s.stopped("default/leaky")
	n.ended(leaky)
	n.alive(calm)
}

// twoRuntimes returns a node with a containerd for the pods and another one, each of the given
// version. Their sockets are in the places where criguard looks on a real node.
func twoRuntimes(t *testing.T, version, dir, idleVersion, idleDir string) (n, idle *node) {
	t.Helper()
	n, idle = newNode(t, version), onLab(t, lab.Shared(t, idleVersion))
	n.endpoint, n.known = "", map[string]string{dir: n.lab.Dir(), idleDir: idle.lab.Dir()}
	return n, idle
}

// command prepares a criguard command. If n.known is set, the command sees only those sockets, in a
// mount namespace of its own.
func (n *node) command(args ...string) *exec.Cmd {
	if n.known == nil {
		return exec.Command(harness.Criguard, args...)
	}
	script := "mount -t tmpfs -o mode=755 none /run\n" +
		"if [ -d /var/snap ]; then mount -t tmpfs -o mode=755 none /var/snap; fi\n" +
		"if [ -e /etc/crictl.yaml ]; then mount --bind /dev/null /etc/crictl.yaml; fi\n"
	for _, dir := range slices.Sorted(maps.Keys(n.known)) {
		script += fmt.Sprintf("mkdir -p '%s'\nmount --bind '%s' '%s'\n", dir, n.known[dir], dir)
	}
	enter := []string{"--mount", "--propagation", "slave", "--", "sh", "-ec", script + `exec "$0" "$@"`, harness.Criguard}
	return exec.Command("unshare", append(enter, args...)...)
}

// forgetSocket removes the socket of a killed runtime, as a boot would.
func (n *node) forgetSocket() {
	n.Helper()
	if err := os.Remove(strings.TrimPrefix(n.lab.Endpoint(), "unix://")); err != nil {
		n.Fatal(err)
	}
}

// socketIn returns the endpoint of a containerd whose socket is in the directory.
func socketIn(dir string) string { return "unix://" + dir + "/containerd.sock" }

// untilAt waits until criguard uses the given runtime and has listed the given number of pods.
func (s *service) untilAt(dir string, pods int) {
	s.Helper()
	s.until(fmt.Sprintf("%d pods of the runtime in %s", pods, dir), func() bool {
		st := s.status()
		return st.Runtime.Up && st.Runtime.Endpoint == socketIn(dir) && st.Pods == pods
	})
}

// keptAt checks that criguard still uses the given runtime, up or down, with its two pods.
func (s *service) keptAt(dir string) {
	s.Helper()
	if st := s.status(); st.Runtime.Endpoint != socketIn(dir) || st.Pods != 2 {
		s.Fatalf("went to %+v with %d pods, want the one in %s with 2", st.Runtime, st.Pods, dir)
	}
}

// showsSocket checks that status shows the runtime's socket as text, too, and that a status without
// the service finds the same one.
func (s *service) showsSocket(dir string) {
	s.Helper()
	if a := s.criguard(s.args("status")...); !strings.Contains(a.Out, " at "+socketIn(dir)+", 2 pods ") {
		s.Errorf("status: exit code %d: %s%s, want %s and 2 pods", a.Code, a.Out, a.Err, socketIn(dir))
	}
	alone := s.criguard("status", "--config", s.config(), "--run-dir", s.TempDir())
	if !strings.Contains(alone.Out, "inspected the node directly") || !strings.Contains(alone.Out, " at "+socketIn(dir)+", 2 pods ") {
		s.Errorf("status without the service: exit code %d: %s%s, want %s and 2 pods", alone.Code, alone.Out, alone.Err, socketIn(dir))
	}
}
