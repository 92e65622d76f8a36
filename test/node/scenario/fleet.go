package scenario

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/certs"
	"github.com/criguard/criguard/test/lab"
)

// inFleet returns the scenarios about a node in a fleet.
func inFleet() []Scenario {
	return []Scenario{
		{
			Name: "fleet-units", What: "the fleet's units as installed: a soft stop gets a permit of etcd; a hard one needs none while the agent is frozen",
			Profiles: []Profile{V2}, Etcd: true, Limit: 8 * time.Minute,
			Run: fleetUnits,
		},
	}
}

// EtcdProgram is etcd on the payload disk.
const EtcdProgram = "etcd"

// Files of the fleet.
const (
	fleetUnit    = "criguard-fleet"
	fleetEtcdDir = "/var/lib/fleet-etcd"
	fleetAddress = "127.0.0.1:2390"
	fleetKey     = "/etc/criguard/fleet/node.key"
	// The slots are short, because permits begin only when those have ended that an etcd which is empty may have lost.
	fleetConfig = `fleet = "lab"
endpoints = ["https://` + fleetAddress + `"]
[tls]
ca = "/etc/criguard/fleet/ca.crt"
cert = "/etc/criguard/fleet/node.crt"
key = "` + fleetKey + `"
[rates]
rate = 0.5
secondary_rate = 0.5
workload_interval = "5s"
`
)

func fleetUnits(n *Node) {
	n.startFleetEtcd()
	n.Write("/etc/criguard/fleet.toml", fleetConfig)
	n.Shell("cd " + payload + "/criguard && install -m 644 criguard-fleet.service criguard-fleet.socket /etc/systemd/system/ && systemctl daemon-reload")
	n.Shell("systemctl enable --now " + fleetUnit)
	n.checkFleetUnits()

	limit := n.Available(policy.MemoryAvailable) - 150<<20
	n.Configure(fmt.Sprintf("[fleet]\nenabled = true\n[eviction]\nmax_pod_grace_period = \"5s\"\n[eviction.soft]\n\"memory.available\" = \"%d\"\n"+
		"[eviction.soft_grace_period]\n\"memory.available\" = \"2s\"\n", limit))
	n.Within("the node to be a member", 2*time.Minute, func() bool { return len(n.fleetStatus().Members) == 1 })
	soft := n.Run(lab.PodSpec{Name: "leaky"}, "hog", "-mib", "250")
	n.Within("the fleet to be asked", 2*time.Minute, func() bool {
		s := n.Status()
		return s.Held == api.HeldFleet || s.Held == api.HeldAsking || len(n.stops()) > 0
	})
	n.Stopped(soft, "soft", policy.MemoryAvailable)
	if a := n.fleetStatus().Node.Agent; a == nil || a.Counts != (fleet.Counts{Permits: 1}) {
		n.Errorf("the soft stop had no permit of the fleet: %+v", a)
	}

	n.Shell("systemctl kill -s STOP --kill-who=main " + fleetUnit)
	leak(n, lab.PodSpec{Name: "frozen"}, "200")
	n.Shell("systemctl kill -s CONT --kill-who=main " + fleetUnit)
	n.Within("the agent to answer again", 2*time.Minute, func() bool { return n.fleetStatus().Node.Agent != nil })
	n.is("systemctl show -p NRestarts --value "+fleetUnit, "0")
	n.Sayf("a permit for a soft stop, and none needed for a hard one")
}

// startFleetEtcd starts an etcd with TLS on loopback, and installs the node's certificate as docs/fleet.md says.
func (n *Node) startFleetEtcd() {
	if err := os.MkdirAll(fleetEtcdDir, 0o700); err != nil {
		n.Fatalf("%v", err)
	}
	authority, err := certs.New(fleetEtcdDir)
	if err != nil {
		n.Fatalf("%v", err)
	}
	files := map[string]fleet.TLS{}
	for _, name := range []string{"server", "node"} {
		if files[name], err = authority.Issue(name, time.Hour); err != nil {
			n.Fatalf("%v", err)
		}
	}
	server, node, url := files["server"], files["node"], "https://"+fleetAddress
	n.Write("/etc/systemd/system/fleet-etcd.service", "[Service]\nExecStart="+filepath.Join(payload, EtcdProgram)+
		" --data-dir "+fleetEtcdDir+"/data --unsafe-no-fsync --log-level=warn"+
		" --listen-client-urls="+url+" --advertise-client-urls="+url+" --listen-peer-urls=http://127.0.0.1:0"+
		" --client-cert-auth --trusted-ca-file="+server.CA+" --cert-file="+server.Cert+" --key-file="+server.Key+"\n")
	n.Shell("systemctl daemon-reload && systemctl start fleet-etcd")
	n.Until("etcd to listen", func() bool {
		c, err := net.Dial("tcp", fleetAddress)
		return err == nil && c.Close() == nil
	})
	n.Shell("install -D -m 644 " + node.CA + " /etc/criguard/fleet/ca.crt && install -m 644 " + node.Cert + " /etc/criguard/fleet/node.crt" +
		" && install -m 640 -g criguard-fleet " + node.Key + " " + fleetKey)
}

// checkFleetUnits checks what the units promise: who runs the agent, who owns its socket, and who can read its key.
func (n *Node) checkFleetUnits() {
	for _, unit := range []string{fleetUnit + ".service", fleetUnit + ".socket"} {
		n.is("systemctl is-enabled "+unit, "enabled")
		n.is("systemctl is-active "+unit, "active")
	}
	n.is("stat -c '%a %U:%G' /run/criguard/fleet.sock", "600 root:root")
	n.is("stat -c %U /proc/$(systemctl show -p MainPID --value "+fleetUnit+")", "criguard-fleet")
	n.is("runuser -u criguard-fleet -- test -r "+fleetKey+" && echo readable", "readable")
	n.is("runuser -u nobody -- test -r "+fleetKey+" || echo hidden", "hidden")
}

// fleetStatus is what this scenario needs of the output of `criguard fleet status`.
type fleetStatus struct {
	Members []struct{ Node string }
	Node    struct {
		Agent *struct{ Counts fleet.Counts }
	}
}

// fleetStatus asks the fleet. An agent that does not answer leaves the status incomplete.
func (n *Node) fleetStatus() (s fleetStatus) {
	text, _ := shell("criguard fleet status -o json")
	_ = json.Unmarshal([]byte(text), &s)
	return s
}
