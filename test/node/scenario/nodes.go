package scenario

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/test/lab"
)

// Large is a node with room for as many pods as a kubelet allows.
var Large = Profile{Name: "v2-large", Cgroup: 2, Containerd: 1, MemoryMiB: 4096}

// nodes returns the scenarios about the node as a whole.
func nodes() []Scenario {
	return []Scenario{
		{
			Name: "reboot", What: "the node reboots: criguard is back by itself, with an empty history and a full budget, finds the pods cgroup and guards",
			Profiles: []Profile{V2}, Limit: 5 * time.Minute,
			Run: func(n *Node) {
				if !n.Rebooted {
					n.Reboot()
				}
				n.settledRuntime()
				if stops := n.stops(); len(stops) > 0 {
					n.Errorf("the history has stops of before the reboot: %v", stops)
				}
				leak(n, lab.PodSpec{Name: "leaky"}, "200")
				if at := n.Status().Kernel.PodsCgroup; at != n.lab.PodsCgroup() {
					n.Errorf("the pods cgroup, which was made after criguard had started, is %q to it", at)
				}
			},
		},
		{
			Name: "pods-110", What: "one of 110 pods leaks: it is stopped, nobody else",
			Profiles: []Profile{Large}, Limit: 15 * time.Minute,
			Run: func(n *Node) {
				n.crowd(110 - 1)
				leak(n, lab.PodSpec{Name: "leaky"}, "0")
			},
		},
	}
}

// crowd starts permanent pods, several at a time, until the node has the given number.
func (n *Node) crowd(all int) {
	const atOnce = 4
	type started struct {
		*Pod
		err error
	}
	queue, results := make(chan int), make(chan started)
	for range atOnce {
		go func() {
			for i := range queue {
				p, err := n.launch(lab.PodSpec{
					Name: fmt.Sprintf("pod-%d", i), MemoryRequest: 8 << 20, Containers: []lab.ContainerSpec{{Name: "main"}},
				})
				results <- started{p, err}
			}
		}()
	}
	missing := all - len(n.pods)
	go func() {
		defer close(queue)
		for i := range missing {
			queue <- i
		}
	}()
	for range missing {
		r := <-results
		if r.err != nil {
			n.Fatalf("%v", r.err)
		}
		r.standing = true
		n.pods = append(n.pods, r.Pod)
	}
	n.before.pods = n.remains()
}
