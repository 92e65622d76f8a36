package docs_test

import (
	"slices"
	"strings"
	"testing"
)

// way is how a command is run.
type way int

const (
	nobody   way = iota
	inTree       // on this machine, in a copy of the tree
	inRoom       // in a Debian root, where the copy of the tree is, too
	onNode       // criguard, beside a containerd with pods
	byOthers     // listed in others
)

// others are commands that this test cannot run, with who does.
var others = map[string]string{
	"make test":     "runs this test",
	"make packages": "test/package makes those of all architectures",
	"make bench":    benchByHand,
	`make bench BENCH="-only latency -tries 10"`:      benchByHand,
	`make bench BENCH="-idle 1m -pods 50"`:            benchByHand,
	"make sidebyside":                                 "an hour of virtual nodes; its scenarios are test/node's",
	"make e2e SCENARIO=unit":                          "a step of its own in .ci/run",
	"criguard top":                                    "test/live looks at it in a terminal",
	"criguard explain PASS":                           "test/report explains a real stop",
	"criguard drain --grace 30s":                      "test/live drains a node of its own",
	`criguard drain --grace 1m --reason "new kernel"`: "test/live drains a node of its own",
	"systemctl enable --now criguard":                 inVirtualNode,
	"systemctl reload criguard":                       inVirtualNode,
	"journalctl -u criguard":                          inVirtualNode,
}

// benchByHand stands for figures that only a quiet machine has.
const benchByHand = "measures the machine for minutes, and fails on one that is busy; its parts are tested in test/bench"

// inVirtualNode stands for the test on a whole node with systemd as PID 1.
const inVirtualNode = "test/node starts the unit under systemd, reloads it and reads its journal"

// wayOf finds how a command is run. One that begins with a word that is not known here is
// run by nobody, and fails the test.
func wayOf(command string) way {
	if _, known := others[command]; known {
		return byOthers
	}
	first, _, _ := strings.Cut(command, " ")
	switch first {
	case "criguard", "curl", "jq", "cat":
		return onNode
	case "make":
		return inTree
	case "apt-get", "dpkg", "rpm", "install", "sed", "systemd-sysusers", "systemd-tmpfiles":
		return inRoom
	}
	return nobody
}

func TestWays(t *testing.T) {
	for command, want := range map[string]way{
		"make test": byOthers, "make packages ARCH=amd64": inTree, "systemctl restart criguard": nobody, "reboot": nobody,
		"criguard status": onNode, "dpkg -i x.deb": inRoom,
	} {
		if got := wayOf(command); got != want {
			t.Errorf("%s: %d, want %d", command, got, want)
		}
	}
}

// Whatever is listed as run elsewhere is shown.
func TestOthersAreShown(t *testing.T) {
	var all []string
	for _, name := range documents(t) {
		for _, c := range commandsOf(t, name) {
			all = append(all, c.text)
		}
	}
	for command := range others {
		if !slices.Contains(all, command) {
			t.Errorf("no document shows %q", command)
		}
	}
}
