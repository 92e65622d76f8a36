package docs_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// way is how a command runs.
type way int

const (
	nobody   way = iota
	inTree       // on this machine, in a copy of the tree
	inRoom       // in a Debian root, which also has the copy of the tree
	onNode       // criguard on a node with containerd and pods
	byOthers     // listed in others
)

// elsewhere is where a command runs that this test cannot run: a file of the tree, and the line in
// it.
type elsewhere struct{ file, does string }

var others = map[string]elsewhere{
	".ci/run":                   {".ci/steps", " make --keep-going test\n"}, // which runs this test
	"make test":                 {".ci/steps", " make --keep-going test\n"},
	"make unit":                 {"Makefile", "\ntest: vet unit smoke "},
	"make smoke":                {"Makefile", "\ntest: vet unit smoke "},
	"make lint":                 {".ci/steps", " make lint\n"},
	"make verify":               {"Makefile", "\n\t.ci/verify\n"}, // an hour, by hand
	"make test-real":            {".ci/verify", " make test-real "},
	"make test32":               {".ci/verify", " make test32\n"},
	"make properties":           {".ci/verify", " make properties\n"},
	"make world":                {".ci/verify", " make world SEEDS=300\n"},
	"make world SEEDS=300":      {".ci/verify", " make world SEEDS=300\n"},
	"make fuzz":                 {".ci/verify", " make fuzz FUZZTIME="},
	"go run ./test/lab/install": {"Makefile", "\n\t$(leftovers) go run ./test/lab/install\n"}, // it needs the room that this test uses
	"make packages":             {"test/package/main_test.go", `"packages", `},                // for all architectures
	"make cluster":              {"Makefile", "e2e: $(if $(SCENARIO),,cluster) "},
	"make e2e":                  {".ci/verify", " make e2e TRIES=5 AGAIN=yes"},
	"make e2e TRIES=5":          {".ci/verify", " make e2e TRIES=5 AGAIN=yes"},
	"criguard explain PASS":     {"test/report/real_test.go", `s.ask(0, "explain", fmt.Sprint(stop.ID))`},
	// Beside a real kubelet.
	"ctr -n k8s.io images import dist/criguard-v1.2.3-amd64.tar":            {"test/lab/image.go", `"images", "import", `},
	"kubectl -n kube-system get pods -l app=criguard -o wide":               {"test/cluster/pod_test.go", "kubectlLine.FindAllStringSubmatch(page, -1)"},
	"kubectl -n kube-system exec criguard-x7k2p -- /criguard status":        {"test/cluster/pod_test.go", "kubectlLine.FindAllStringSubmatch(page, -1)"},
	"kubectl -n kube-system exec criguard-x7k2p -- /criguard explain":       {"test/cluster/pod_test.go", "kubectlLine.FindAllStringSubmatch(page, -1)"},
	"kubectl -n kube-system logs criguard-x7k2p":                            {"test/cluster/pod_test.go", "kubectlLine.FindAllStringSubmatch(page, -1)"},
	"kubectl -n kube-system exec criguard-x7k2p -- /criguard check --quiet": {"test/cluster/pod_test.go", "kubectlLine.FindAllStringSubmatch(page, -1)"},
	"kubectl -n kube-system exec criguard-x7k2p -- /criguard reload":        {"test/cluster/pod_test.go", "kubectlLine.FindAllStringSubmatch(page, -1)"},
	// On a separate node where stops do no harm.
	"criguard drain --grace 30s":                                  {"test/live/orders_test.go", `"drain", "--grace", `},
	`criguard drain --grace 1m --reason "new kernel"`:             {"test/live/orders_test.go", `"drain", "--grace", "2s", "--reason", "new kernel"`},
	"criguard stop default/shop":                                  {"test/live/orders_test.go", `"stop", "--grace", `},
	`criguard stop default/shop --grace 10s --reason "runs amok"`: {"test/live/orders_test.go", `"stop", "--grace", "2s", "--reason", "runs amok"`},
	// Beside an etcd, which docs/fleet.md sets up. test/fleet runs every command of that page.
	"criguard fleet status": {"test/fleet/document_test.go", `"../../docs/fleet.md"`},
	// Under systemd as PID 1, on a virtual node.
	"systemctl enable --now criguard":  {"test/node/scenario/setup.go", `"systemctl enable --now criguard"`},
	"systemctl disable --now criguard": {"test/node/scenario/package.go", `"systemctl disable --now criguard"`},
	"systemctl reload criguard":        {"test/node/scenario/service.go", `"systemctl reload criguard"`},
	"journalctl -u criguard":           {"test/node/scenario/memory.go", `"journalctl -u criguard | `},
}

// shorter maps commands that take minutes or hours to a form with fewer tries or without machines.
var shorter = map[string]string{
	"make bench": `make bench BENCH="-only pass"`,
	"make image": "make image ARCH=amd64",
	`make bench BENCH="-only latency -tries 10"`: `make bench BENCH="-only latency -tries 1 -pods 5"`,
	`make bench BENCH="-idle 1m -pods 50"`:       `make bench BENCH="-only idle -idle 1s -settle 5s -pods 5"`,
	"make fleet":                                 `make -n fleet && go vet ./test/fleet`,
	"make sidebyside":                            `eval "$(make -n sidebyside) -list"`,
	"make sidebyside TRIES=5":                    `eval "$(make -n sidebyside TRIES=5) -list"`,
	"make e2e SCENARIO=faults FAULTS=10m":        `eval "$(make -n e2e SCENARIO=faults FAULTS=10m) -list"`,
	"make e2e SCENARIO=unit":                     `eval "$(make -n e2e SCENARIO=unit) -list"`,
	"make e2e SCENARIO=v2-kube":                  `eval "$(make -n e2e SCENARIO=v2-kube) -list"`,
	"make e2e SCENARIO=leak":                     `eval "$(make -n e2e SCENARIO=leak) -list"`,
	"go run ./test/node -run clock/v1 -j 1":      "go run ./test/node -run clock/v1 -j 1 -list",
}

// wayOf returns how a command runs. A command whose first word is unknown does not run, and fails
// the test.
func wayOf(command string) way {
	if _, known := others[command]; known {
		return byOthers
	}
	if strings.HasPrefix(command, "make e2e") {
		return nobody // it boots machines: add it to others or shorter
	}
	first, _, _ := strings.Cut(command, " ")
	switch first {
	case "criguard", "curl", "jq", "cat":
		return onNode
	case "make", "go", "eval":
		return inTree
	case "apt-get", "dpkg", "rpm", "install", "sed", "systemd-sysusers", "systemd-tmpfiles", "journalctl":
		return inRoom
	}
	return nobody
}

func TestWays(t *testing.T) {
	for command, want := range map[string]way{
		"make test": byOthers, "make packages ARCH=amd64": inTree, "systemctl restart criguard": nobody, "make e2e SCENARIO=new": nobody, "reboot": nobody,
		"criguard status": onNode, "dpkg -i x.deb": inRoom,
	} {
		if got := wayOf(command); got != want {
			t.Errorf("%s: %d, want %d", command, got, want)
		}
	}
}

// TestEveryCommandIsRun knows how to run each command.
func TestEveryCommandHasAWay(t *testing.T) {
	for _, name := range documents(t) {
		for _, c := range commandsOf(t, name) {
			if name != "docs/fleet.md" && wayOf(c.command()) == nobody { // see TestEveryCommandIsRun
				t.Errorf("%s: nobody runs %q: let wayOf know how, or list it in others", c.at, c.text)
			}
		}
	}
}

// Every command in others and shorter is in a document, and really runs where the list says.
func TestOthersAreShownAndRun(t *testing.T) {
	var all []string
	for _, name := range documents(t) {
		for _, c := range commandsOf(t, name) {
			all = append(all, c.text)
		}
	}
	for _, command := range slices.Concat(slices.Collect(maps.Keys(others)), slices.Collect(maps.Keys(shorter))) {
		if !slices.Contains(all, command) {
			t.Errorf("no document shows %q", command)
		}
	}
	for command, by := range others {
		text, err := os.ReadFile(filepath.Join(root, by.file))
		if err != nil || !strings.Contains(string(text), by.does) {
			t.Errorf("%q: %s has no %q: %v", command, by.file, by.does, err)
		}
	}
}

// A name of the Makefile's list that no test has would select nothing, silently.
func TestSmokeTestsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(makefile), "\nSMOKE := ")
	list, _, ended := strings.Cut(list, "\n#")
	if !found || !ended {
		t.Fatal("the Makefile has no list SMOKE that a comment follows")
	}
	var tests strings.Builder
	files, err := filepath.Glob("../live/*_test.go")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for name := range strings.FieldsSeq(strings.ReplaceAll(list, "\\", "")) {
		name, sub, _ := strings.Cut(name, "/")
		for part := range strings.SplitSeq(sub, "/") {
			if part != "" && !strings.HasPrefix(part, "containerd-") && !strings.Contains(tests.String(), `"`+strings.ReplaceAll(part, "_", " ")+`"`) {
				t.Errorf("%s has no %q", name, part)
			}
		}
		if !strings.Contains(tests.String(), "\nfunc "+name+"(t *testing.T) {") {
			t.Errorf("test/live has no %s", name)
		}
	}
}
