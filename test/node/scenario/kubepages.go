package scenario

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/criguard/criguard/test/cluster"
)

// Files on the payload disk for criguard in a pod: its image, and the page with the manifests.
const (
	GuardImage   = "criguard-image.tar"
	ImageVersion = "v1.2.3" // as in the manifests
	PodPage      = "in-a-pod.md"
)

func kubePod(n *Node) {
	manifest := n.api.StaticPodPath("criguard")
	n.guardInPod("criguard-"+cluster.Node, func() {
		n.Write(configFile, besideKubelet)
		n.Write(manifest, n.blocks(PodPage, "yaml")[0])
	}, func() { n.Shell("rm " + manifest) })
}

// kubeDaemonSet creates the DaemonSet's pod itself, because a controller manager does not run here.
func kubeDaemonSet(n *Node) {
	n.guardInPod("criguard", func() {
		n.kubectl("create", "--validate=strict", "-f", n.file("daemonset.yaml", strings.Replace(n.blocks(PodPage, "yaml")[1],
			"mode = \"observe\"\n", strings.ReplaceAll("mode = \"enforce\"\n"+besideKubelet, "\n", "\n    ")+"\n", 1)))
		pod := struct {
			APIVersion string         `json:"apiVersion"`
			Kind       string         `json:"kind"`
			Metadata   map[string]any `json:"metadata"`
			Spec       map[string]any `json:"spec"`
		}{}
		template := n.kubectl("get", "daemonset", "--namespace=kube-system", "criguard", "--output=jsonpath={.spec.template}")
		if err := json.Unmarshal([]byte(template), &pod); err != nil {
			n.Fatalf("%v: %s", err, template)
		}
		pod.APIVersion, pod.Kind, pod.Metadata = "v1", "Pod", map[string]any{"name": "criguard", "namespace": "kube-system"}
		pod.Spec["nodeName"] = cluster.Node
		text, err := json.Marshal(pod)
		if err != nil {
			n.Fatalf("%v", err)
		}
		n.kubectl("create", "--validate=strict", "-f", n.file("pod.json", string(text)))
	}, func() { n.kubectl("delete", "--namespace=kube-system", "--wait=false", "pod", "criguard") })
}

// guardInPod runs criguard in a pod instead of the service. It checks that it sees the node and stops a leak, not itself.
func (n *Node) guardInPod(name string, create, remove func()) {
	if err := importArchive(GuardImage); err != nil {
		n.Fatalf("%v", err)
	}
	n.Shell("systemctl stop criguard")
	create()
	own, err := n.running(name)
	if err != nil {
		n.Fatalf("%v", err)
	}
	p := n.always("leaky", "200")
	n.Until("criguard to list all pods", func() bool {
		s, err := n.guard.Status(n.context())
		return err == nil && s.Pods == len(n.apiPods())
	})
	if s := n.Status(); len(s.Warnings) > 0 || len(s.Alarms) > 0 {
		n.Errorf("warnings %q, alarms %q", s.Warnings, s.Alarms)
	}
	n.letLeak(p)
	n.isBack(p, 0)
	if now := n.machine.Processes(own.Containers[0].Cgroup); !slices.Contains(now, own.pids[0]) {
		n.Wrongf("criguard's own pod has processes %v, had %v", now, own.pids)
	}
	remove()
	n.Until("criguard to be removed", func() bool { _, there := n.apiPods()[own.Name]; return !there })
	n.Shell("systemctl start criguard")
	n.settled()
}

// Files on the payload disk for showing a stop to the cluster.
const (
	KubeletPage = "kubelet.md"
	Examples    = "examples"
)

// unitFile is a unit on the page, which begins with its path.
var unitFile = regexp.MustCompile(`(?m)^# (/etc/systemd/system/[a-z.-]+).*$`)

// kubeEvent follows docs/kubelet.md: it copies the scripts, adds the hook, and enables the unit.
func kubeEvent(n *Node) {
	n.Shell("install -D -t /usr/local/lib/criguard " + payload + "/" + Examples + "/* && ln -s " + n.api.KubectlDir() + "/kubectl /usr/local/bin/ && " +
		"mkdir -p /etc/kubernetes && ln -s " + n.api.Kubeconfig() + " /etc/kubernetes/kubelet.conf")
	page := n.blocks(KubeletPage, "ini")[0]
	names := unitFile.FindAllStringSubmatchIndex(page, -1)
	for i, at := range names {
		end := len(page)
		if i+1 < len(names) {
			end = names[i+1][0]
		}
		n.Write(page[at[2]:at[3]], page[at[1]:end])
	}
	n.Shell("systemctl daemon-reload && systemctl enable --now criguard-events.path")
	for _, block := range n.blocks(KubeletPage, "toml") {
		if strings.Contains(block, "[[hook]]") {
			n.Configure(besideKubelet + block)
		}
	}
	p := n.always("leaky", "200")
	n.settled()
	stop := n.letLeak(p)
	n.Until("the pod to be deleted", func() bool { _, there := n.apiPods()[p.Name]; return !there })
	events, err := n.api.Events(n.context(), p.Namespace)
	if err != nil {
		n.Fatalf("%v", err)
	}
	found := 0
	for _, e := range events {
		if e.Source.Component != "criguard" {
			continue
		}
		found++
		if e.InvolvedObject.UID != p.UID || e.Reason != "StoppedByCriguard" || e.Message != stop.Reason {
			n.Errorf("event %+v, want one about %s: %s", e, p.UID, stop.Reason)
		}
	}
	if found != 1 {
		n.Errorf("%d events of criguard, want 1", found)
	}
	n.Until("the event's file to be removed", func() bool { return n.Shell("ls /run/criguard/events") == "" })
}
