package live_test

import (
	"context"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// A pod without a cgroup of its own shares one with all others, and its short UID occurs in that
// cgroup's name. The cgroup parents of others are a relative path and, although the runtime does not use
// systemd, a slice. criguard charges each pod with its own usage alone, stops none for another pod's
// leak, and sees when the processes of one that is stopped have ended.
func TestSharedCgroups(t *testing.T) {
	onEach(t, func(n *node) {
		shared := path.Base(n.lab.Cgroup())
		uid := shared[strings.LastIndexByte(shared, '-')+1:]
		calm := n.pod(lab.PodSpec{Name: "calm", Containers: hog(300 * mib)})
		var bare []*lab.RunningPod
		for _, spec := range []lab.PodSpec{{Name: "small", UID: uid}, {Name: "relative", Parent: "bare"}, {Name: "sliced", Parent: "bare.slice"}} {
			spec.Bare, spec.Containers = true, []lab.ContainerSpec{{Name: "main", Args: []string{"hog", "-mib", "16"}}}
			bare = append(bare, n.pod(spec))
		}
		leaky := n.pod(lab.PodSpec{Name: "leaky", Containers: leak(1024*mib, "800")})
		n.hogs(calm)
		for _, p := range bare {
			n.hogs(p)
		}
		conf := config{}
		n.configure(conf)
		s := n.startWith(2 + len(bare))
		r, err := control.NewClient(rundir.Dir(s.dir)).Rank(context.Background(), policy.MemoryAvailable)
		if err != nil {
			n.Fatal(err)
		}
		for _, p := range r.Pods {
			isBare := slices.ContainsFunc(bare, func(b *lab.RunningPod) bool { return b.SandboxID == p.Sandbox })
			if isBare && (p.Usage < 16*mib || p.Usage > 64*mib) {
				n.Errorf("pod %s is charged with %d MiB, want 16", p.Pod, p.Usage/mib)
			}
		}
		n.leakUntilDead(leaky, s.arm(conf))
		s.stopped("default/leaky")
		n.alive(append(bare, calm)...)
		for _, p := range bare {
			if a := n.criguard(n.args("stop", "--grace", "0s", "--reason", "test", "default/"+p.Name)...); a.Code != 0 {
				n.Errorf("stop %s: exit code %d: %s%s", p.Name, a.Code, a.Out, a.Err)
			}
			settled := s.settled()
			if r := settled[len(settled)-1].Result; !r.Emptied || r.EmptiedIn == 0 || len(n.pids(p.Containers[0].Cgroup)) > 0 {
				n.Errorf("%s: %+v", p.Name, r)
			}
		}
		n.alive(calm)
	})
}
