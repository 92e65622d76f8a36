package scenario

import (
	"regexp"
	"strconv"
)

// install returns the scenarios about the unit and the files installed with it.
func install() []Scenario {
	return []Scenario{
		{
			Name: "unit", What: "the service as installed: hardened, with its socket for group criguard alone",
			Profiles: []Profile{V2, V1},
			Run:      unit,
		},
	}
}

func unit(n *Node) {
	text := n.Shell("systemd-analyze security --no-pager criguard | tail -1")
	found := regexp.MustCompile(`: ([0-9.]+) `).FindStringSubmatch(text)
	if found == nil {
		n.Fatalf("no exposure level in %q", text)
	}
	if level, err := strconv.ParseFloat(found[1], 64); err != nil || level > 2.9 {
		n.Errorf("exposure level %s, want 2.9 at most", found[1])
	}
	if got := n.Shell("stat -c '%a %U:%G' /run/criguard/criguard.sock"); got != "660 root:criguard" {
		n.Errorf("the control socket is %s, want 660 root:criguard", got)
	}
	n.Sayf("exposure level %s of 10", found[1])
}
