package systemd

import (
	"os"
	"strings"
	"testing"
)

// The agent of a fleet has a connection to the network, and nothing else.
func TestFleetUnitSays(t *testing.T) {
	u, _ := readUnitFile(t, "criguard-fleet.service")
	for _, c := range []struct{ key, want, why string }{
		{"Service.Type", "notify", "READY=1 says when the guard is answered"},
		{"Service.ExecStart", "/usr/bin/criguard fleet agent", "the agent"},
		{"Service.Restart", "always", "a node without an agent is alone"},
		{"Unit.StartLimitIntervalSec", "0", "and for ever"},
		{"Unit.Requires", "criguard-fleet.socket", "the socket is systemd's"},
		{"Service.User", "criguard-fleet", "a static user, who can own a key"},
		{"Service.CapabilityBoundingSet", "", "no privileges"},
		{"Service.AmbientCapabilities", "", "no privileges"},
		{"Service.NoNewPrivileges", "yes", "no privileges"},
		{"Service.MemoryMax", "64M", "a limit of its own"},
		{"Service.Environment", "GOMEMLIMIT=20MiB", "bounded"},
		{"Service.RuntimeDirectory", "criguard-fleet", "times since boot end with the boot"},
		{"Service.RuntimeDirectoryPreserve", "yes", "a restart must not end the patience of an episode"},
		{"Service.ProtectSystem", "strict", "writes nowhere else"},
		{"Service.RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6", "the guard, the journal and etcd"},
		{"Install.WantedBy", "multi-user.target", "starts at boot"},
		{"Install.Also", "criguard-fleet.socket", "is enabled with its socket"},
	} {
		if got := strings.Join(u[c.key], " "); got != c.want {
			t.Errorf("%s=%s, want %s: %s", c.key, got, c.want, c.why)
		}
	}
	for key, why := range map[string]string{
		"Service.IPAddressDeny":  "etcd is on the network",
		"Service.PrivateNetwork": "etcd is on the network",
		"Service.PrivateUsers":   "would not start where user namespaces are switched off",
		"Service.DynamicUser":    "the key of the certificate needs an owner",
		"Service.PrivateTmp":     "fails the start if the disk is full, read-only or not mounted",
		"Service.PrivateDevices": "writes to /tmp at the start, as PrivateTmp",
		"Unit.Wants":             "the guard may be stopped on its own",
	} {
		if got, says := u[key]; says {
			t.Errorf("%s=%s: %s", key, strings.Join(got, " "), why)
		}
	}
	if b, err := os.ReadFile("criguard.sysusers"); err != nil || !strings.Contains(string(b), "\nu criguard-fleet ") {
		t.Errorf("sysusers does not make the user: %v", err)
	}
}

// Only root may connect to the agent, and only systemd may create its socket.
func TestFleetSocketSays(t *testing.T) {
	u, _ := readUnitFile(t, "criguard-fleet.socket")
	for key, want := range map[string]string{
		"Socket.ListenStream": "/run/criguard/fleet.sock", "Socket.SocketUser": "root", "Socket.SocketGroup": "root",
		"Socket.SocketMode": "0600", "Socket.RemoveOnStop": "yes", "Socket.DirectoryMode": "0755", "Install.WantedBy": "sockets.target",
	} {
		if got := strings.Join(u[key], " "); got != want {
			t.Errorf("%s=%s, want %s", key, got, want)
		}
	}
}
