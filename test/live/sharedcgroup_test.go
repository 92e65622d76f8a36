package live_test

import (
	"context"
	"path"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// A pod without a cgroup parent shares a cgroup with all others, and its short UID occurs in that
// cgroup's name. criguard charges the pod only with its own usage, and does not stop it for another
// pod's leak.
func TestShortUIDInASharedCgroup(t *testing.T) {
	onEach(t, func(n *node) {
		shared := path.Base(n.lab.Cgroup())
		uid := shared[strings.LastIndexByte(shared, '-')+1:]
		calm := n.pod(lab.PodSpec{Name: "calm", Containers: hog(300 * mib)})
		small := n.pod(lab.PodSpec{Name: "small", UID: uid, Bare: true, Containers: []lab.ContainerSpec{{Name: "main", Args: []string{"hog", "-mib", "16"}}}})
		leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "800")})
		n.hogs(calm)
		n.hogs(small)
		conf := config{}
		n.configure(conf)
		s := n.startWith(3)
		r, err := control.NewClient(rundir.Dir(s.dir)).Rank(context.Background(), policy.MemoryAvailable)
		if err != nil {
			n.Fatal(err)
		}
		for _, p := range r.Pods {
			if p.Sandbox == small.SandboxID && p.Usage > 64*mib {
				n.Errorf("pod %s with UID %q in %s is charged with %d MiB, want 16", p.Pod, uid, n.lab.Cgroup(), p.Usage/mib)
			}
		}
		n.leakUntilDead(leaky, s.arm(conf))
		s.stopped("default/leaky")
		n.alive(calm, small)
	})
}
