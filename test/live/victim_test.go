package live_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/criguard/criguard/test/lab"
)

// leaks is how often TestVictim lets a pod leak.
var leaks = flag.Int("leaks", 6, "how many pods leak in TestVictim")

// On a machine that does other work, the pod that leaks is stopped every time, and no other: whatever its rate
// and its priority, among pods of different sizes. Pods that come back are among them.
func TestVictim(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	random := rand.New(rand.NewPCG(1, 2))
	var innocents []*lab.RunningPod
	for i := range 6 {
		p := n.pod(lab.PodSpec{Name: fmt.Sprintf("innocent-%d", i), Containers: hog((20 + random.Int64N(180)) * mib)})
		n.hogs(p)
		innocents = append(innocents, p)
	}
	conf := config{more: plenty + "[[priority]]\nname = \"high-*\"\nvalue = 1000000\n"}
	n.configure(conf)
	s := n.startSampled(len(innocents))
	for i := range *leaks {
		name, rate := fmt.Sprintf("equal-%d", i%4), []string{"200", "800", "3000"}[i%3]
		if i%2 == 1 {
			name, rate = fmt.Sprintf("high-%d", i%4), []string{"800", "3000"}[i/2%2]
		}
		leaky := n.pod(lab.PodSpec{Name: name, Containers: leak(1024*mib, rate)})
		s.until("the pod to be listed", func() bool { return s.status().Pods == len(innocents)+1 })
		s.arm(conf)
		n.release(leaky)
		n.until(fmt.Sprintf("stop %d", i+1), func() bool { return len(s.settled()) == i+1 })
		if got := s.stops()[i].Stop; got.Sandbox != leaky.SandboxID {
			t.Fatalf("innocent pod: leak %d of %s at %s MiB/s: stopped %s: %s\n%+v", i+1, name, rate, got.Pod, got.Reason, s.stops()[i].Need)
		}
		n.ended(leaky)
		conf.hard = nil // while the next pod starts
		n.configure(conf)
		s.reload()
		s.until("the pod to be gone", func() bool { return s.status().Pods == len(innocents) })
	}
	n.alive(innocents...)
}
