package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// The packages on the payload disk: from this tree, and the same with a version later than any
// other.
const (
	FirstPackage = "criguard.deb"
	LaterPackage = "criguard-later.deb"
	LaterVersion = "v99.0.0"
)

// packages returns the scenarios about the deb, from its first installation to its purge.
func packages() []Scenario {
	return []Scenario{
		{
			Name: "package", What: "the package is installed, configured, reloaded, upgraded, purged and installed again while the node works",
			Profiles: []Profile{V2}, Debs: true, Limit: 7 * time.Minute,
			Run: packaged,
		},
	}
}

func packaged(n *Node) {
	version := n.Status().Version
	users := n.Shell("getent passwd; getent group | grep -v ^criguard:")
	n.dismantle()
	before := n.listing()

	n.firstInstalled(version)
	n.reconfigured()
	n.upgraded()
	leak(n, lab.PodSpec{Name: "leaky"}, "200")
	n.wrongStops()

	n.Shell("dpkg --purge criguard")
	n.purged(before)
	if now := n.Shell("getent passwd; getent group | grep -v ^criguard:"); now != users {
		n.Errorf("users and groups were\n%s\nand are\n%s", users, now)
	}
	n.firstInstalled(LaterVersion)
	n.Sayf("installed, reloaded, upgraded to %s, purged and installed again", LaterVersion)
}

// dismantle removes what setUp installed by hand.
func (n *Node) dismantle() {
	n.Shell("systemctl disable --now criguard")
	n.Shell("rm -rf /usr/bin/criguard /etc/criguard /run/criguard /var/lib/criguard /etc/systemd/system/criguard.service" +
		" /usr/lib/sysusers.d/criguard.conf /usr/lib/tmpfiles.d/criguard.conf")
	n.Shell("groupdel criguard && systemctl daemon-reload")
}

// firstInstalled installs a package on a node without one. It checks that the configuration is in
// observe mode, that the service is not running, and that it answers once it is enabled.
func (n *Node) firstInstalled(version string) {
	deb := FirstPackage
	if version == LaterVersion {
		deb = LaterPackage
	}
	if out := n.installed(deb); strings.Contains(out, "mistake") {
		n.Errorf("installing %s says %s", deb, out)
	}
	n.is("criguard version | cut -d' ' -f2", version)
	n.is("systemctl is-enabled criguard", "disabled")
	n.is("systemctl is-active criguard", "inactive")
	n.is("criguard check | grep -m1 ^mode", `mode = "observe"`)
	n.is("journalctl --list-catalog 2>/dev/null | grep -q criguard && echo known", "known")
	n.Shell("systemctl enable --now criguard")
	n.settled()
	if s := n.Status(); s.Version != version || s.Mode != "observe" {
		n.Errorf("the service is %s in %s mode, want %s in observe mode", s.Version, s.Mode, version)
	}
	n.is("systemctl is-enabled criguard", "enabled")
	n.is("stat -c '%a %U:%G' /run/criguard/criguard.sock", "660 root:criguard")
}

// edited is an administrator's configuration.
const edited = "mode = \"enforce\"\n[eviction.hard]\n\"memory.available\" = \"123Mi\"\n"

// reconfigured edits the configuration, with and without mistakes, while the service keeps running.
func (n *Node) reconfigured() {
	pid := n.pid()
	n.Write(configFile, edited)
	n.Shell("systemctl reload criguard")
	n.Until("the edited configuration to be in force", func() bool { return n.inForce("123Mi") })

	n.Write(configFile, strings.Replace(edited, "123Mi", "lots", 1))
	n.Shell("systemctl reload criguard")
	n.Until("the refusal", func() bool { return strings.Contains(n.Status().ConfigNote, "memory.available") })
	// An upgrade with a mistake in the configuration must not stop the guard.
	if out := n.installed(FirstPackage); !strings.Contains(out, "the configuration has mistakes") {
		n.Errorf("installing over a configuration with a mistake says only %s", out)
	}
	if !n.inForce("123Mi") {
		n.Errorf("a configuration with a mistake took the place of the good one: %+v", n.Status())
	}
	if text := n.Shell("systemctl status criguard; criguard status || true"); strings.Count(text, "rejected") < 2 {
		n.Errorf("systemctl status and criguard status do not both tell of the refusal:\n%s", text)
	}
	n.Write(configFile, edited)
	n.Shell("systemctl reload criguard")
	n.Until("the mended configuration", func() bool { return n.Status().ConfigNote == "" && n.inForce("123Mi") })
	if now := n.pid(); now != pid {
		n.Errorf("process %s took the place of %s by a reload, or by an upgrade over a mistake", now, pid)
	}
}

// upgraded installs the later version over the first.
func (n *Node) upgraded() {
	pid, budget := n.pid(), n.Status().Budget.Hard.LastHour
	n.installed(LaterPackage)
	n.settled()
	if n.pid() == pid || n.Status().Version != LaterVersion {
		n.Errorf("the service is %s after the upgrade, want %s", n.Status().Version, LaterVersion)
	}
	if !n.inForce("123Mi") || n.Status().Budget.Hard.LastHour != budget {
		n.Errorf("the upgrade changed the configuration or the budget: %+v", n.Status())
	}
	n.is("cat "+configFile, strings.TrimSpace(edited))
	n.is("systemctl is-enabled criguard", "enabled")
}

// purged checks the node after a purge. The group stays, as the Debian Policy Manual (9.2) advises,
// so that its ID is not reused.
func (n *Node) purged(before string) {
	if now := n.listing(); now != before {
		n.Write("/run/before", before+"\n")
		n.Write("/run/after", now+"\n")
		n.Errorf("the purge left or took:\n%s", n.Shell("diff /run/before /run/after || true"))
	}
	n.is("systemctl list-units --all --plain --no-legend 'criguard*'", "")
	n.is("systemctl list-unit-files --no-legend 'criguard*'", "")
	n.is("pgrep -a criguard || true", "")
	n.is("ls -d /run/criguard /etc/criguard /var/lib/criguard 2>/dev/null || true", "")
	n.is("journalctl --list-catalog 2>/dev/null | grep criguard || true", "")
	n.is("dpkg-query -W criguard 2>/dev/null || true", "")
}

// installed installs a package from the payload disk and returns its output.
func (n *Node) installed(deb string) string {
	return n.Shell(fmt.Sprintf("DEBIAN_FRONTEND=noninteractive dpkg -i %s/%s </dev/null 2>&1", payload, deb))
}

// listing returns every path on the root filesystem, except the files of the runtime, dpkg and the
// journal, and directories of links, which systemctl removes when they are empty.
func (n *Node) listing() string {
	return n.Shell("find / -xdev \\( -path /var/lib/containerd -o -path /var/lib/dpkg -o -path /var/log -o -path /var/lib/kubelet" +
		" -o -path /tmp -o -path /var/tmp \\) -prune -o ! -name '*.wants' -print | sort")
}

// is compares a command's output with the expected one.
func (n *Node) is(command, want string) {
	if got, _ := shell(command); got != want {
		n.Errorf("%s: %q, want %q", command, got, want)
	}
}

// inForce reports whether the service is in enforce mode with the given memory threshold.
func (n *Node) inForce(threshold string) bool {
	s := n.Status()
	if s.Mode != "enforce" {
		return false
	}
	for _, signal := range s.Signals {
		if signal.Signal == policy.MemoryAvailable && len(signal.Thresholds) > 0 {
			return signal.Thresholds[0].Value == threshold
		}
	}
	return false
}
