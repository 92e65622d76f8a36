package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/cluster"
)

// The hook and the unit of docs/kubelet.md show a stop to the cluster: as an event about the pod, and by
// deleting the pod.
func TestStopEvent(t *testing.T) {
	n := newNode(t)
	n.create(cluster.Workload("innocent", cluster.Resources{}, "hog", "-mib", "100"), leak("leaky", "Always"))
	examples, err := filepath.Abs("../../docs/examples")
	n.check(err)
	spool := filepath.Join(n.guard.Dir, "events")
	n.startGuard(2, fmt.Sprintf("[[hook]]\non = [\"stop\"]\ncommand = [%q, %q]\n", examples+"/spool-event", spool))
	pod := n.pod("leaky")
	n.leakUntilStopped("leaky")
	n.until("the event's file", func() bool {
		files, err := filepath.Glob(spool + "/*.json")
		n.check(err)
		return len(files) == 1
	})

	page, err := os.ReadFile("../../docs/kubelet.md")
	n.check(err)
	unit := regexp.MustCompile(`(?m)^ExecStart=/bin/sh -c '(.*)'$`).FindSubmatch(page)
	if unit == nil {
		t.Fatal("docs/kubelet.md has no unit")
	}
	command := strings.NewReplacer(
		"/run/criguard/events", spool, "/usr/local/lib/criguard", examples, "/etc/kubernetes/kubelet.conf", n.cluster.Kubeconfig(),
	).Replace(string(unit[1]))
	cmd := exec.CommandContext(n.Context(), "/bin/sh", "-c", command)
	cmd.Env = []string{"PATH=" + n.cluster.KubectlDir() + ":" + os.Getenv("PATH"), "HOME=" + n.guard.Dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	events, err := n.cluster.Events(n.Context(), "default")
	n.check(err)
	var found []cluster.Event
	for _, e := range events {
		if e.Source.Component == "criguard" {
			found = append(found, e)
		}
	}
	stop := n.settled()[0]
	if len(found) != 1 || found[0].InvolvedObject.UID != pod.Metadata.UID || found[0].Reason != "StoppedByCriguard" || found[0].Message != stop.Reason {
		t.Errorf("events %+v, want one about %s: %s", found, pod.Metadata.UID, stop.Reason)
	}
	n.guard.Within(tidy, "the pod to be deleted", func() bool { _, ok := n.pods()["leaky"]; return !ok })
	n.untouched()
	n.removed()
}
