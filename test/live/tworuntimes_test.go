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
	"github.com/criguard/criguard/test/lab"
)

// Where containerds listen; k3s's ranks before the distribution's.
const (
	ofK3s          = "/run/k3s/containerd"
	ofDistribution = "/run/containerd"
)

// Of two runtimes, the one with the pods is the node's: whichever came up first, whichever
// ranks first, and while it restarts.
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

// keepsToThePods has a runtime with pods and one without come up, one after the other, and the
// one with pods restart, and a pod leak.
func (n *node) keepsToThePods(idle *node, with, without string) {
	n.Helper()
	calm := n.pod(lab.PodSpec{Name: "calm", Containers: hog(64 * mib)})
	leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "400")})
	n.hogs(calm)
	n.configure(config{
		hard:     thresholds{policy.AllocatableMemoryAvailable: bytes(podsMemory - 512*mib)},
		eviction: map[string]string{"interval": "500ms"}, // a loss is noticed when listing
	})

	// As after a boot, where the other runtime is quicker.
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

	// The pods live on while their runtime is away; the other one has none to offer.
	n.killRuntime()
	n.until("the loss to be noticed", func() bool { return !s.status().Runtime.Up })
	lost := s.status().Uptime
	n.until("several listings to fail", func() bool {
		s.keptAt(with)
		return s.status().Uptime-lost > 3*time.Second
	})
	n.restartRuntime()
	n.until("the pods to be listed again", func() bool {
		s.keptAt(with)
		return s.status().Runtime.Up
	})

	// As after a boot, where the pods' runtime is quicker.
	s.end()
	idle.killRuntime()
	idle.forgetSocket()
	s = n.startWith(2)
	idle.restartRuntime()
	both := s.status().Uptime
	n.until("several listings with both", func() bool {
		s.keptAt(with)
		return s.status().Uptime-both > 2*time.Second
	})
	s.showsSocket(with)

	n.alive(calm, leaky) // or something else on the machine has killed them
	n.release(leaky)
	s.stopped("default/leaky")
	n.ended(leaky)
	n.alive(calm)
}

// twoRuntimes is a node with a containerd for the pods and another one, each of a version. Their
// sockets are where criguard finds them on a real node.
func twoRuntimes(t *testing.T, version, dir, idleVersion, idleDir string) (n, idle *node) {
	t.Helper()
	n, idle = newNode(t, version), onLab(t, lab.Shared(t, idleVersion))
	n.endpoint, n.known = "", map[string]string{dir: n.lab.Dir(), idleDir: idle.lab.Dir()}
	return n, idle
}

// command prepares one of criguard's commands. Where sockets are known, it sees them, and no
// others of the machine's, in a mount namespace of its own.
func (n *node) command(args ...string) *exec.Cmd {
	if n.known == nil {
		return exec.Command(built.criguard, args...)
	}
	script := "mount -t tmpfs -o mode=755 none /run\n" +
		"if [ -d /var/snap ]; then mount -t tmpfs -o mode=755 none /var/snap; fi\n" +
		"if [ -e /etc/crictl.yaml ]; then mount --bind /dev/null /etc/crictl.yaml; fi\n"
	for _, dir := range slices.Sorted(maps.Keys(n.known)) {
		script += fmt.Sprintf("mkdir -p '%s'\nmount --bind '%s' '%s'\n", dir, n.known[dir], dir)
	}
	enter := []string{"--mount", "--propagation", "slave", "--", "sh", "-ec", script + `exec "$0" "$@"`, built.criguard}
	return exec.Command("unshare", append(enter, args...)...)
}

// forgetSocket removes what a killed runtime leaves of its socket, as a boot does.
func (n *node) forgetSocket() {
	n.Helper()
	if err := os.Remove(strings.TrimPrefix(n.lab.Endpoint(), "unix://")); err != nil {
		n.Fatal(err)
	}
}

// socketIn is the endpoint of a containerd that has its socket in a directory.
func socketIn(dir string) string { return "unix://" + dir + "/containerd.sock" }

// untilAt waits until a runtime is the node's, and so many pods are listed.
func (s *service) untilAt(dir string, pods int) {
	s.Helper()
	s.until(fmt.Sprintf("%d pods of the runtime in %s", pods, dir), func() bool {
		st := s.status()
		return st.Runtime.Up && st.Runtime.Endpoint == socketIn(dir) && st.Pods == pods
	})
}

// keptAt makes sure that a runtime is the node's, up or not, with its two pods.
func (s *service) keptAt(dir string) {
	s.Helper()
	if st := s.status(); st.Runtime.Endpoint != socketIn(dir) || st.Pods != 2 {
		s.Fatalf("went to %+v with %d pods, want the one in %s with 2", st.Runtime, st.Pods, dir)
	}
}

// showsSocket makes sure that status names the runtime's socket, to people, too, and that
// whoever looks without the service finds the same one.
func (s *service) showsSocket(dir string) {
	s.Helper()
	if a := s.criguard(s.args("status")...); !strings.Contains(a.out, " at "+socketIn(dir)+", 2 pods ") {
		s.Errorf("status: exit code %d: %s%s, want %s and 2 pods", a.code, a.out, a.err, socketIn(dir))
	}
	alone := s.criguard("status", "--config", s.config(), "--run-dir", s.TempDir())
	if !strings.Contains(alone.out, "no service runs") || !strings.Contains(alone.out, " at "+socketIn(dir)+", 2 pods ") {
		s.Errorf("status without the service: exit code %d: %s%s, want %s and 2 pods", alone.code, alone.out, alone.err, socketIn(dir))
	}
}
