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

// A pod without a cgroup of its own shares one with all others, and its short UID occurs in that
// cgroup's name. Another's cgroup parent is a relative path. criguard charges each pod with its own usage
// alone, and stops neither for another pod's leak.
func TestSharedCgroups(t *testing.T) {
	onEach(t, func(n *node) {
		shared := path.Base(n.lab.Cgroup())
		uid := shared[strings.LastIndexByte(shared, '-')+1:]
		calm := n.pod(lab.PodSpec{Name: "calm", Containers: hog(300 * mib)})
		little := []lab.ContainerSpec{{Name: "main", Args: []string{"hog", "-mib", "16"}}}
		small := n.pod(lab.PodSpec{Name: "small", UID: uid, Bare: true, Containers: little})
		relative := n.pod(lab.PodSpec{Name: "relative", Bare: true, Relative: true, Containers: little})
		leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "800")})
		n.hogs(calm)
		n.hogs(small)
		n.hogs(relative)
		conf := config{}
		n.configure(conf)
		s := n.startWith(4)
		r, err := control.NewClient(rundir.Dir(s.dir)).Rank(context.Background(), policy.MemoryAvailable)
		if err != nil {
			n.Fatal(err)
		}
		for _, p := range r.Pods {
			bare := p.Sandbox == small.SandboxID || p.Sandbox == relative.SandboxID
			if bare && (p.Usage < 16*mib || p.Usage > 64*mib) {
				n.Errorf("pod %s with UID %q is charged with %d MiB, want 16", p.Pod, uid, p.Usage/mib)
			}
		}
		n.leakUntilDead(leaky, s.arm(conf))
		s.stopped("default/leaky")
		n.alive(calm, small, relative)
	})
}
