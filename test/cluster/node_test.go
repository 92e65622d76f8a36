package cluster_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/cluster"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

const (
	mib = 1 << 20
	// headroom is how far the node's memory is above the threshold before a leak of leakSize.
	headroom, leakSize = 1024 * mib, 3072 * mib
	// tidy limits the wait for the kubelet's garbage collection, which runs once a minute.
	tidy = 3 * time.Minute
)

// node is a node of Kubernetes together with criguard's files.
type node struct {
	*testing.T
	lab     *lab.Lab
	cluster *cluster.Cluster
	guard   *harness.Node
	runtime *cri.Client
}

// newNode starts a node for a single test.
func newNode(t *testing.T) *node { t.Helper(); return newNodeWith(t, lab.Options{}, cluster.Options{}) }

func newNodeWith(t *testing.T, machine lab.Options, options cluster.Options) *node {
	t.Helper()
	machine.Workload, options.Say = built.workload, t.Logf
	l := harness.StartLab(t, machine)
	c, err := cluster.Start(t.Context(), l, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	n := &node{T: t, lab: l, cluster: c, guard: &harness.Node{T: t, Dir: harness.ShortDir(t)}}
	if n.runtime, err = cri.Dial(l.Endpoint(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.runtime.Close() })
	n.configure(policy.MemoryAvailable, 1, "") // practically never
	return n
}

// on returns the node for a subtest.
func (n *node) on(t *testing.T) *node {
	sub := *n
	sub.T, sub.guard = t, &harness.Node{T: t, Dir: n.guard.Dir}
	return &sub
}

// until polls until a condition is true.
func (n *node) until(what string, done func() bool) {
	n.Helper()
	n.guard.Within(harness.Patience, what, done)
}

// check fails the test if an error is not nil.
func (n *node) check(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// leak returns a pod that takes leakSize of memory after a call to open, each time it runs: 800 MiB/s, unless
// more arguments say otherwise.
func leak(name, restartPolicy string, more ...string) cluster.Pod {
	args := []string{"hog", "-mib", strconv.Itoa(leakSize / mib), "-rate", "800", "-when", "/ctl/go"}
	p := cluster.Workload(name, cluster.Resources{}, append(args, more...)...)
	p.Spec.RestartPolicy = restartPolicy
	return p
}

// create creates pods and waits until they run.
func (n *node) create(pods ...cluster.Pod) {
	n.Helper()
	for _, p := range pods {
		n.check(n.cluster.CreatePod(n.Context(), p))
	}
	for _, p := range pods {
		n.until("pod "+p.Metadata.Name+" to run", func() bool { return n.pod(p.Metadata.Name).Runs() })
	}
}

// pods returns the pods in the API by name.
func (n *node) pods() map[string]cluster.Pod {
	n.Helper()
	pods, err := n.cluster.Pods(n.Context())
	n.check(err)
	return pods
}

func (n *node) pod(name string) cluster.Pod { n.Helper(); return n.pods()[name] }

// open makes a pod leak, until the returned function is called: before the kubelet restarts it. The pod may be gone by then.
func (n *node) open(p cluster.Pod) (shut func()) {
	n.Helper()
	valve := filepath.Join(n.lab.KubeletRoot(), "pods", p.Metadata.UID, "volumes/kubernetes.io~empty-dir/ctl/go")
	n.check(os.WriteFile(valve, nil, 0o600))
	return func() {
		n.Helper()
		if err := os.Remove(valve); !errors.Is(err, fs.ErrNotExist) {
			n.check(err)
		}
	}
}

// leakUntilStopped makes a pod leak until criguard has stopped it, and checks that it stopped no other. It
// returns the pod as it was before.
func (n *node) leakUntilStopped(name string) cluster.Pod {
	n.Helper()
	pod, before := n.pod(name), len(n.stops())
	shut := n.open(pod)
	n.until("a stop of "+name, func() bool { return len(n.stops()) > before })
	shut()
	n.until("the stop to settle", func() bool { return len(n.settled()) > before })
	stops := n.settled()[before:]
	if len(stops) != 1 || stops[0].Pod != "default/"+name || !stops[0].Result.Emptied {
		n.Fatalf("stopped %+v, want only default/%s", stops, name)
	}
	return pod
}

// again waits until the kubelet has restarted a pod in another sandbox than those that criguard has stopped. As
// long as a sandbox is ready, the kubelet restarts a dead container in it, and StopPodSandbox then ends that one, too.
// The log of the stopped container is still there, unless such a container has become the previous one.
func (n *node) again(stopped cluster.Pod) {
	n.Helper()
	name := stopped.Metadata.Name
	var now cluster.Pod
	defer func() {
		if n.Failed() {
			n.Logf("%s: %+v", name, now.Status)
		}
	}()
	n.until("pod "+name+" to run again", func() bool {
		now = n.pod(name)
		return now.Runs() && now.Restarts() > stopped.Restarts() && n.outlivesStops(now)
	})
	last := now.Status.ContainerStatuses[0].LastState.Terminated
	if last == nil || last.ContainerID != stopped.Status.ContainerStatuses[0].ContainerID {
		n.Logf("%s was restarted %d times; its last container was %+v", name, now.Restarts()-stopped.Restarts(), last)
	} else if n.logs(name, "-p") == "" {
		n.Errorf("the log of the stopped container of %s is lost", name)
	}
}

// outlivesStops reports whether a pod's container runs in a sandbox that criguard has not stopped.
func (n *node) outlivesStops(p cluster.Pod) bool {
	n.Helper()
	containers, err := n.runtime.Containers(n.Context())
	n.check(err)
	i := slices.IndexFunc(containers, func(c cri.Container) bool {
		return strings.HasSuffix(p.Status.ContainerStatuses[0].ContainerID, "://"+c.ID)
	})
	return i >= 0 && !slices.ContainsFunc(n.stops(), func(s api.StopView) bool { return s.Sandbox == containers[i].SandboxID })
}

// configure writes criguard's configuration. Its only threshold is that of a signal.
func (n *node) configure(signal policy.Signal, hard int64, more string) {
	n.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s[history]\ndir = %q\n[eviction.hard]\n%q = \"%d\"\n", n.lab.Config(), n.guard.Dir, signal, hard)
	for name := range policy.DefaultHard() {
		if name != signal.String() {
			fmt.Fprintf(&b, "%q = \"0%%\"\n", name)
		}
	}
	b.WriteString(more)
	n.guard.Configure(b.String())
}

// available returns what a signal has available now.
func (n *node) available(signal policy.Signal) int64 {
	n.Helper()
	for _, s := range harness.Ask[api.Status](n.guard, "status").Signals {
		if s.Signal == signal {
			return s.Available
		}
	}
	n.Fatalf("no signal %s", signal)
	return 0
}

// startGuard starts criguard, with a hard threshold of the memory available now less the headroom, and
// waits until it has listed the given number of pods.
func (n *node) startGuard(pods int, more string) {
	n.Helper()
	n.startGuardOn(policy.MemoryAvailable, headroom, pods, more)
}

func (n *node) startGuardOn(signal policy.Signal, headroom int64, pods int, more string) {
	n.Helper()
	n.configure(signal, n.available(signal)-headroom, more)
	n.guard.Start()
	n.listed(pods)
}

// listed waits until criguard has listed the given number of pods.
func (n *node) listed(pods int) {
	n.Helper()
	n.until(fmt.Sprintf("criguard to list %d pods", pods), func() bool {
		status, err := n.guard.Client().Status(n.Context())
		n.check(err)
		return status.Pods == pods
	})
}

// history returns criguard's passes, oldest first.
func (n *node) history() []api.Pass {
	n.Helper()
	passes, err := n.guard.Client().History(n.Context(), 0)
	n.check(err)
	return passes
}

// stops returns criguard's stops.
func (n *node) stops() (stops []api.StopView) {
	n.Helper()
	for _, p := range n.history() {
		if p.Stop != nil {
			stops = append(stops, *p.Stop)
		}
	}
	return stops
}

// settled returns criguard's stops whose outcome is known.
func (n *node) settled() (stops []api.StopView) {
	n.Helper()
	for _, p := range n.history() {
		stops = append(stops, p.Settled...)
	}
	return stops
}

// untouched checks that every other pod has not been restarted, that the node has no problem and every image that a pod needs,
// and that nothing is left of pods that are gone.
func (n *node) untouched(but ...string) {
	n.Helper()
	pods := n.pods()
	for _, touched := range cluster.Touched(pods, func(name string) bool { return slices.Contains(but, name) }) {
		n.Errorf("pod was touched: %s", touched)
	}
	status, err := n.cluster.GetNode(n.Context())
	n.check(err)
	for _, problem := range status.Problems() {
		n.Error(problem)
	}
	lost, err := cluster.LostImages(n.Context(), n.runtime, pods)
	n.check(err)
	if len(lost) > 0 {
		n.Errorf("images are lost: %v", lost)
	}
	n.noOrphans()
}

// noOrphans waits until nothing is left of pods that are gone: no sandbox, log, volume or cgroup.
func (n *node) noOrphans() {
	n.Helper()
	var orphans []string
	defer func() {
		if n.Failed() {
			n.Logf("left: %v", orphans)
		}
	}()
	n.guard.Within(tidy, "the deleted pods to be removed", func() (done bool) {
		var err error
		orphans, err = cluster.Orphans(n.Context(), n.lab, n.runtime, n.pods())
		n.check(err)
		return len(orphans) == 0
	})
}

// removed deletes all pods and waits until nothing is left of them.
func (n *node) removed() {
	n.Helper()
	n.check(n.cluster.DeletePods(n.Context(), "default"))
	n.guard.Within(tidy, "the pods to be deleted", func() bool { return len(n.pods()) == 0 })
	n.noOrphans()
}

// logs returns the logs of a pod's last container, or with -p of the one before.
func (n *node) logs(args ...string) string {
	n.Helper()
	out, err := n.cluster.Kubectl(n.Context(), append([]string{"logs"}, args...)...)
	n.check(err)
	return out
}
