package scenario

import (
	"regexp"
	"strings"
)

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
