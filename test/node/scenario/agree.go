package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/cluster"
)

// kubeDerived compares what criguard derives from the runtime with the API. A pod of each class runs already.
func kubeDerived(n *Node) {
	memory := func(amount string) map[string]string { return map[string]string{"memory": amount} }
	pod := func(name string, resources cluster.Resources) cluster.Pod {
		return cluster.Workload(name, resources, "pause")
	}
	critical := pod("critical", cluster.Resources{Requests: memory("40Mi")})
	critical.Spec.PriorityClassName = "system-node-critical"
	sidecar := pod("sidecar", cluster.Resources{Requests: memory("60Mi")})
	sidecar.Spec.InitContainers = []cluster.Container{
		{Name: "proxy", RestartPolicy: "Always", Args: []string{"pause"}, Resources: cluster.Resources{Requests: memory("20Mi")}},
		{Name: "setup", Args: []string{"exit"}, Resources: cluster.Resources{Requests: memory("30Mi")}},
	}
	if err := n.api.CreateStaticPod(pod("static", cluster.Resources{Requests: memory("50Mi")})); err != nil {
		n.Fatalf("%v", err)
	}
	const mirror = "static-" + cluster.Node
	n.add(n.running(mirror))
	for _, p := range []cluster.Pod{critical, sidecar, pod("resized", cluster.Resources{Requests: memory("30Mi")})} {
		n.add(n.create(p))
	}
	n.agree(mirror)
	if err := n.api.ResizePod(n.context(), "default", "resized", "main", cluster.Resources{Requests: memory("70Mi")}); err != nil {
		n.Fatalf("%v", err)
	}
	n.Until("the resize", func() bool {
		return n.apiPods()["resized"].Status.ContainerStatuses[0].Resources.Requests["memory"] == "70Mi"
	})
	n.agree(mirror)
}

// agree waits until criguard has derived of each pod what the API says.
func (n *Node) agree(mirror string) {
	excluded := map[string]string{mirror: "static pod", "critical": "critical priority"}
	var differences []string
	begin := time.Now()
	late := poll("agreement", patience, func() bool {
		differences = n.differences(excluded)
		return len(differences) == 0
	})
	if late != nil {
		n.Fatalf("%v: %s", late, strings.Join(differences, "; "))
	}
	n.Sayf("%d pods agree after %s", len(n.apiPods()), time.Since(begin).Round(100*time.Millisecond))
}

func (n *Node) differences(excluded map[string]string) (differences []string) {
	ranking, err := n.guard.Rank(n.context(), policy.MemoryAvailable)
	if err != nil {
		n.Fatalf("%v", err)
	}
	ranked := map[string]api.RankedView{}
	for _, p := range ranking.Pods {
		ranked[p.Pod] = p
	}
	for name, p := range n.apiPods() {
		got, ok := ranked[p.Metadata.Namespace+"/"+name]
		want, err := p.MemoryRequest()
		if err != nil {
			n.Fatalf("%v", err)
		}
		if !ok || got.QoS != p.Status.QOSClass || got.Request != want || got.Excluded != excluded[name] {
			differences = append(differences, fmt.Sprintf("%s is %s with request %d (%s), excluded %q; the API has %s, %d, excluded %q",
				name, got.QoS, got.Request, got.RequestSource, got.Excluded, p.Status.QOSClass, want, excluded[name]))
		}
	}
	return differences
}

// kubeSignals compares the signals at rest and while pods use what they measure.
func kubeSignals(n *Node) {
	n.compareSignals("at rest")
	load := cluster.Workload("load", cluster.Resources{}, "hog", "-mib", "200")
	for name, args := range map[string]string{
		"disk": "fill -path /ctl/fill -mib 80", "inodes": "inodes -dir /ctl -count 2000", "tasks": "fork -count 40",
	} {
		c := load.Spec.Containers[0]
		c.Name, c.Args = name, strings.Fields(args)
		load.Spec.Containers = append(load.Spec.Containers, c)
	}
	n.add(n.create(load))
	n.compareSignals("under load")
}

// compareSignals waits until criguard and the kubelet agree, and reports what both say. The kubelet caches its
// statistics for up to 10 s, and its memory.available leaves out the memory of the kernel itself.
func (n *Node) compareSignals(when string) {
	type pair struct {
		signal                  policy.Signal
		criguard, kubelet, most int64
	}
	var pairs []pair
	late := poll("agreement", patience, func() bool {
		k, err := n.api.Summary(n.context())
		if err != nil {
			n.Fatalf("%v", err)
		}
		kernel, err := cluster.KernelMemory()
		if err != nil {
			n.Fatalf("%v", err)
		}
		node := k.Node
		pairs = []pair{
			{signal: policy.MemoryAvailable, kubelet: node.Memory.AvailableBytes - kernel, most: 40 << 20},
			{signal: policy.PIDAvailable, kubelet: node.Rlimit.MaxPID - node.Rlimit.CurProc, most: 30},
			{signal: policy.NodeFSAvailable, kubelet: node.FS.AvailableBytes, most: 8 << 20},
			{signal: policy.NodeFSInodesFree, kubelet: node.FS.InodesFree, most: 200},
			{signal: policy.ImageFSAvailable, kubelet: node.Runtime.ImageFS.AvailableBytes, most: 8 << 20},
			{signal: policy.ContainerFSAvailable, kubelet: node.Runtime.ContainerFS.AvailableBytes, most: 8 << 20},
		}
		agree := true
		for i := range pairs {
			p := &pairs[i]
			p.criguard = n.Available(p.signal)
			agree = agree && max(p.criguard-p.kubelet, p.kubelet-p.criguard) <= p.most
		}
		return agree
	})
	if late != nil {
		n.Errorf("%s: %v", when, late)
	}
	for _, p := range pairs {
		n.Sayf("%s: %s %d, kubelet %d, difference %d", when, p.signal, p.criguard, p.kubelet, p.criguard-p.kubelet)
	}
}
