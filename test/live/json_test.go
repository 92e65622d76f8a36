package live_test

import (
	"strings"
	"testing"

	"github.com/criguard/criguard/test/jsondoc"
	"github.com/criguard/criguard/test/lab"
)

// On a real node, every command with -o json prints what docs/json.md says, with and without the service. Those of a
// fleet need an etcd: test/fleet has them.
func TestJSONOutputs(t *testing.T) {
	doc, err := jsondoc.Read("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, lab.Containerd2)
	n.pod(lab.PodSpec{Name: "one", Containers: one("pause")})
	n.configure(config{})
	walked := map[string]bool{}
	walk := func(lines ...string) {
		for _, line := range lines {
			args := strings.Fields(line)
			a := n.criguard(n.args(append(args, "-o", "json")...)...)
			if a.Code > 1 || a.Err != "" {
				t.Errorf("%s: exit code %d, stdout %q, stderr %q", line, a.Code, a.Out, a.Err)
			}
			for _, wrong := range doc.Command(args[0], false, []byte(a.Out)) {
				t.Errorf("%s: %s", line, wrong)
			}
			walked[args[0]] = true
		}
	}
	walk("status", "rank", "rank --signal nodefs.available", "images", "prune --dry-run --verbose", "check", "version")
	s := n.startWith(1)
	walk("reload", "protect default/one --for 1m", "unprotect default/one", "pause --for 1m", "status", "resume", "drain --dry-run", "undrain", "status", "rank", "prune --dry-run --verbose", "history", "explain")
	n.until("the commands to be saved", func() bool { return n.criguard(n.args("explain")...).Code == 0 })
	walk("stop default/one --grace 0s --yes")
	s.End()
	walk("history", "explain")
	for _, name := range doc.Commands() {
		if !walked[name] && !strings.HasPrefix(name, "fleet ") {
			t.Errorf("criguard %s -o json was not compared", name)
		}
	}
}
