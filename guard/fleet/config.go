package fleet

import (
	"net/netip"
	"strings"
	"time"
)

// DefaultPath is the path of the agent's configuration.
const DefaultPath = "/etc/criguard/fleet.toml"

// Config is the configuration of the agent, checked and with all defaults filled in. Its fields are named after the
// keys of the file.
type Config struct {
	Fleet     string   // name of the fleet, [a-z0-9.-]; its keys begin with /criguard/v1/<fleet>/
	Zone      string   // name of the node's zone, [a-z0-9.-]; "": the fleet is one zone
	Node      string   // name of the node, [a-z0-9.-], without the suffix of its machine ID; "": the host name
	Endpoints []string // URLs of etcd's members, tried in turn
	TLS       TLS
	Rates     Rates
}

// TLS configures the connection to etcd: absolute paths of PEM files.
type TLS struct {
	CA       string // certificates of the authorities that etcd's certificate is checked with
	Cert     string // the node's certificate
	Key      string // and its key
	Insecure bool   // plain text; only to loopback addresses
}

// Rates configures how often a fleet makes soft stops.
type Rates struct {
	Rate             Millionths    // permits per second of a normal zone
	Secondary        Millionths    // of a large zone that is not normal
	LargeZone        int           // more members than this make a zone large
	Unhealthy        Millionths    // share of members that want a stop from which a zone is partial
	MinZone          int           // a zone with fewer members is always normal
	WorkloadInterval time.Duration // between two permits of a workload, across all zones; whole seconds
	Patience         time.Duration // how long a node waits for a permit in an episode of a pool
}

// DefaultRates returns the rates of the node lifecycle controller's flags, and criguard's own.
func DefaultRates() Rates {
	return Rates{
		Rate: one / 10, Secondary: one / 100, LargeZone: 50, Unhealthy: 55 * one / 100,
		MinZone: 4, WorkloadInterval: 5 * time.Minute, Patience: 15 * time.Minute,
	}
}

// maxName is the longest name, in bytes: that of a host name.
const maxName = 253

// ValidName reports whether a name of a fleet, a zone or a node has 1 to 253 of the letters a-z, digits, dots and
// hyphens.
func ValidName(name string) bool {
	return name != "" && len(name) <= maxName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

// IsLoopback reports whether a host is a loopback address. A name is none: it may resolve to another host tomorrow.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
