package live_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/lab"
)

// What an operator meets in the first hour on a node, without the service and with it.
func TestFirstHour(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	n.pod(lab.PodSpec{Name: "shop", Containers: one("pause")})
	n.configure(config{})
	says := func(code int, want []string, args ...string) {
		t.Helper()
		a := n.criguard(args...)
		for _, w := range want {
			if a.Code != code || !strings.Contains(a.Out+a.Err, w) {
				t.Errorf("%v: exit code %d, want %d and %q in\n%s%s", args, a.Code, code, w, a.Out, a.Err)
			}
		}
	}
	file := func(name, text string) string {
		t.Helper()
		name = filepath.Join(n.dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	k3s := "../../guard/config/kubelet/testdata/k3s.yaml"
	says(0, []string{"\"memory.available\" = \"100Mi\"", "the kubelet has no threshold"}, "check", "--from-kubelet", k3s)
	says(0, []string{"\"memory.available\" = \"0%\""}, "check", "--from-kubelet", k3s, "--exact")
	// The flags and the drop-ins of a k3s.
	dropIns := filepath.Join(n.dir, "k3s/agent/etc/kubelet.conf.d")
	if err := os.MkdirAll(dropIns, 0o755); err != nil {
		t.Fatal(err)
	}
	file("k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {pid.available: 7%}\n")
	flags := file("k3s.yaml", "data-dir: "+filepath.Join(n.dir, "k3s")+"\nkubelet-arg: ['eviction-soft=memory.available<2Gi', 'eviction-soft-grace-period=memory.available=1m']\n")
	says(0, []string{"\"memory.available\" = \"2Gi\"", "\"pid.available\" = \"7%\""}, "check", "--from-kubelet", flags)
	says(0, []string{"\n  0  ", "\n  1  ", "\n  3  "}, "status", "--help")
	says(2, []string{`did you mean "memory.available"?`}, "check", file("typo.toml", "[eviction.hard]\n\"memory.avail\" = \"1Gi\"\n"))

	says(0, []string{"default/shop"}, n.args("images")...)
	says(0, []string{"memory.stall: not measured yet"}, n.args("rank", "--signal", "memory.stall")...)
	trace := file("trace.jsonl", `{"at":"0s","signals":{"memory.available":{"available":"2Gi","capacity":"4Gi"}},"pods":[{"uid":"u","name":"default/leaky","memory_usage":"1Gi"}]}`+"\n")
	more := file("more.toml", "[eviction.hard]\n\"memory.available\" = \"3Gi\"\n")
	says(0, []string{"default/leaky", "more.toml"}, n.args("simulate", trace, "--compare", more)...)
	if a := n.criguard("simulate", trace, "--config", more); a.Code != 0 || !strings.Contains(a.Err, "1 stop") || !strings.Contains(a.Err, "default/leaky") {
		t.Errorf("simulate: exit code %d, %s, want a summary with the stop", a.Code, a.Err)
	}
	says(2, []string{"whose parent exists"}, "run", "--config", n.config(), "--run-dir", filepath.Join(n.dir, "typo", "run"))

	n.startWith(1)
	says(0, []string{"default/shop\n"}, slices.Concat([]string{"__complete"}, n.args("protect"), []string{""})...)
	says(0, []string{"memory.available\n"}, "__complete", "rank", "--signal", "memory.av")
	says(0, []string{"table\n", "json\n"}, "__complete", "status", "-o", "")
	says(0, []string{"reload"}, n.args("reload")...)
	says(0, []string{"1\t", "reload"}, slices.Concat([]string{"__complete"}, n.args("explain"), []string{""})...)
}
