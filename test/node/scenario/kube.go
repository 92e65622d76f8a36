package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/cluster"
	"github.com/criguard/criguard/test/lab"
)

// kube returns the scenarios beside a real kubelet, whose pods come from a real API server.
func kube() []Scenario {
	profiles := []Profile{V2Kube}
	return []Scenario{
		{
			Name: "kube-leak", What: "a pod leaks beside a kubelet: it is stopped, nobody else; the kubelet restarts it and evicts nobody",
			Profiles: profiles, Limit: 10 * time.Minute, // starts early, because its profile takes long to boot
			Run: kubeLeak,
		},
		{
			Name: "kube-both", What: "criguard's threshold is 64 MiB above the kubelet's: a leak costs one pod, not two",
			Profiles: profiles, Run: kubeBoth,
		},
		{
			Name: "kube-disk", What: "a pod fills the disk through an emptyDir: it is stopped, nobody else, and the kubelet frees the space",
			Profiles: profiles, Run: kubeDisk,
		},
		{
			Name: "kube-drain", What: "a drain stops what may be stopped as often as the kubelet restarts it, nobody else; then all run again",
			Profiles: profiles, Run: kubeDrain,
		},
		{
			Name: "kube-images", What: "images fill the disk beside a kubelet: as many as needed are pruned, none that a pod uses, nobody is stopped",
			Profiles: profiles, Run: kubeImages,
		},
		{
			Name: "kube-derived", What: "classes, memory requests and exclusions are those of the API, also after a resize",
			Profiles: profiles, Run: kubeDerived,
		},
		{
			Name: "kube-away", What: "pods leak while the kubelet is frozen and while it is stopped: they are stopped, nobody else",
			Profiles: profiles, Run: kubeAway,
		},
		{
			Name: "kube-signals", What: "the signals are those of the kubelet, at rest and under load",
			Profiles: profiles, Run: kubeSignals,
		},
		{
			Name: "kube-event", What: "the hook and the units of docs/kubelet.md: a stop becomes an event of the cluster, and the pod is deleted",
			Profiles: profiles, Run: kubeEvent,
		},
		{
			Name: "kube-pod", What: "criguard runs as the static pod of docs/in-a-pod.md: it sees the node and stops a leak",
			Profiles: profiles, Image: true, Run: kubePod,
		},
		{
			Name: "kube-daemonset", What: "the same for the pod of the DaemonSet, whose configuration is in a ConfigMap",
			Profiles: profiles, Image: true, Run: kubeDaemonSet,
		},
	}
}

// besideKubelet is the configuration of docs/kubelet.md for a kubelet with its default thresholds.
const besideKubelet = "[eviction.hard]\n\"memory.available\" = \"200Mi\"\n\"nodefs.available\" = \"12%\"\n\"imagefs.available\" = \"17%\"\n"

// always starts a pod that leaks at a rate in MiB per second after each call to leaks, and that the kubelet
// restarts.
func (n *Node) always(name, rate string) *Pod {
	n.disarm(name)
	pod := podOf(primed(name, "hog", "-mib", "4096", "-rate", rate))
	pod.Spec.RestartPolicy = "Always"
	return n.add(n.create(pod))
}

// add adds a pod to the node's pods.
func (n *Node) add(p *Pod, err error) *Pod {
	if err != nil {
		n.Fatalf("%v", err)
	}
	n.pods = append(n.pods, p)
	return p
}

// letLeak lets a primed pod leak, and waits until criguard has stopped it and no other.
func (n *Node) letLeak(p *Pod) api.StopView {
	p.stopped = true
	begun, settled := len(n.stops()), len(n.settledStops())
	n.arm(p.Name)
	n.Until("a stop", func() bool { return len(n.stops()) > begun })
	n.disarm(p.Name) // before the kubelet restarts it
	n.Until("the stop to settle", func() bool { return len(n.settledStops()) > settled })
	stop := n.settledStops()[settled]
	if stop.UID != p.UID || stop.Kind != "hard" || !stop.Result.Emptied {
		n.Wrongf("stopped %+v, want %s", stop, p.ID())
	}
	n.Sayf("stopped %s at %d MiB, empty after %s", p.ID(), stop.Available>>20, stop.Result.EmptiedIn.Round(time.Millisecond))
	return stop
}

// isBack waits until the kubelet has restarted a pod that was killed, more often than before. It returns how
// often it has restarted the pod now, and whether it did so at the first try: it may start a container in the
// sandbox that is being killed.
func (n *Node) isBack(p *Pod, before int) (restarts int, atOnce bool) {
	begin := time.Now()
	var now cluster.Pod
	n.Until(p.ID()+" to run again", func() bool {
		now = n.apiPods()[p.Name]
		return now.Runs() && now.Restarts() > before
	})
	n.Sayf("restarted after %s", time.Since(begin).Round(time.Second))
	last := now.Status.ContainerStatuses[0].LastState
	if !last.Killed() && now.Restarts() == before+1 {
		n.Errorf("the kubelet reports of %s: %+v", p.ID(), last.Terminated)
	}
	return now.Restarts(), now.Restarts() == before+1
}

func kubeLeak(n *Node) {
	n.Run(lab.PodSpec{Name: "busy", MemoryRequest: 100 << 20}, "hog", "-mib", "150")
	n.Configure(besideKubelet)
	p := n.always("leaky", "200")
	n.settled()
	stop := n.letLeak(p)
	if below := int64(200<<20) - stop.Available; below < 0 || below > 64<<20 {
		n.Errorf("the stop began %d bytes below its threshold", below)
	}
	if _, atOnce := n.isBack(p, 0); atOnce {
		log, err := n.api.PreviousLog(n.context(), p.Namespace, p.Name)
		if err != nil || !strings.Contains(log, "hog: begins") {
			n.Errorf("the log of the stopped container: %q, %v", log, err)
		}
		n.Sayf("logs -p has its log")
	}
}

// kubeBoth makes the pod leak twice: the kubelet waits 10 s before the second restart, in which it also looks
// at the signals.
func kubeBoth(n *Node) {
	n.Run(lab.PodSpec{Name: "busy"}, "hog", "-mib", "150")
	n.Configure("[eviction.hard]\n\"memory.available\" = \"164Mi\"\n") // the kubelet's is 100Mi
	p := n.always("leaky", "0")
	n.settled()
	restarts := 0
	for range 2 {
		n.letLeak(p)
		restarts, _ = n.isBack(p, restarts)
	}
}

// kubeDisk writes slowly and from a threshold far above the kubelet's, because the runtime takes seconds for a
// stop under emulation.
func kubeDisk(n *Node) {
	const room = 32 << 20
	threshold := n.Available(policy.NodeFSAvailable) - room
	n.Configure(fmt.Sprintf("[eviction.hard]\n\"nodefs.available\" = \"%d\"\n\"imagefs.available\" = \"%[1]d\"\n", threshold))
	n.disarm("writer")
	spec := primed("writer", "fill", "-path", "/volume/fill", "-mib", "1024", "-rate", "10")
	spec.Containers[0].EmptyDirs = map[string]string{"volume": "/volume"}
	p := n.RunPod(spec)
	n.settled()
	n.arm(p.Name)
	n.Stopped(p, "hard", policy.NodeFSAvailable, policy.ImageFSAvailable, policy.ContainerFSAvailable)
	n.Until("the pod to have failed", func() bool { return n.apiPods()[p.Name].Status.Phase == "Failed" })
	n.Until("the space to be back", func() bool { return n.Available(policy.NodeFSAvailable) > threshold+room/2 })
}

// kubeDrain gives the drain a limit, because the kubelet restarts one of the pods for ever.
func kubeDrain(n *Node) {
	n.Configure("[[protect]]\nname = \"guaranteed\"\n")
	if err := n.api.CreateStaticPod(cluster.Workload("static", cluster.Resources{}, "pause")); err != nil {
		n.Fatalf("%v", err)
	}
	const mirror = "static-" + cluster.Node
	n.add(n.running(mirror))
	n.add(n.create(cluster.Workload("web", cluster.Resources{}, "pause")))
	n.settled()
	for _, p := range n.pods {
		p.stopped = p.Name != mirror && p.Name != "guaranteed"
	}
	n.Sayf("%s", n.Shell("criguard drain --grace 2s --yes --timeout 1m 2>&1; echo exit code $?"))
	stops := map[string]int{}
	for _, s := range n.stops() {
		stops[s.UID]++
	}
	for _, p := range n.pods {
		if p.stopped && stops[p.UID] == 0 {
			n.Errorf("%s was not stopped", p.ID())
		}
	}
	n.Shell("criguard undrain")
	n.Until("the pod to run again", func() bool { return n.apiPods()["web"].Runs() })
}

// kubeImages has images that leave less room than criguard's threshold, but more than the kubelet's, which collects none.
func kubeImages(n *Node) {
	if err := importArchive(SpareImages); err != nil {
		n.Fatalf("%v", err)
	}
	const list = "ctr -n k8s.io images list -q name~=registry.example"
	before := strings.Fields(n.Shell(list))
	user := cluster.Workload("user", cluster.Resources{}, "pause")
	user.Spec.Containers[0].Image = before[0]
	p := n.add(n.create(user))
	n.Configure("[images]\nmin_age = \"0s\"\nunused_grace = \"0s\"\nhold_after_runtime_restart = \"0s\"\n" + besideKubelet)
	n.Until("images to be pruned", func() bool {
		return len(strings.Fields(n.Shell(list))) < len(before) && n.share(policy.ImageFSAvailable) >= 17
	})
	n.NobodyStopped(3 * time.Second)
	n.remove(p)
	n.add(n.create(user)) // it pulls nothing
}

func kubeAway(n *Node) {
	n.Configure(besideKubelet)
	for _, c := range []struct{ name, away, back string }{
		{"frozen", "systemctl kill -s STOP --kill-who=main kubelet", "systemctl kill -s CONT --kill-who=main kubelet"},
		{"down", "systemctl stop kubelet", "systemctl start kubelet"},
	} {
		p := n.always(c.name, "200")
		n.settled()
		n.Shell(c.away)
		n.letLeak(p)
		n.Shell(c.back)
		n.isBack(p, 0)
	}
}
