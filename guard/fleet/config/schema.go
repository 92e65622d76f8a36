package config

import (
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/policy"
)

// Limits of values.
const (
	maxRate      = fleet.Millionths(500_000) // a permit per slot of fleet.MinSlot
	maxMembers   = 1_000_000                 // of a zone
	maxEndpoints = 16
	minPatience  = time.Minute
	maxWait      = 24 * time.Hour
)

// allKeys lists every key, bound to a configuration with the default rates.
func allKeys(cfg *fleet.Config) []schema.Key {
	t, r := &cfg.TLS, &cfg.Rates
	return []schema.Key{
		schema.Text("fleet", &cfg.Fleet, name),
		schema.Text("zone", &cfg.Zone, name),
		schema.Text("node", &cfg.Node, name),
		schema.Bind("endpoints", &cfg.Endpoints, schema.NoUnit, nil, endpoints, schema.Same),
		schema.Text("tls.ca", &t.CA, file),
		schema.Text("tls.cert", &t.Cert, file),
		schema.Text("tls.key", &t.Key, file),
		schema.Flag("tls.insecure", &t.Insecure, false),
		millionths("rates.rate", &r.Rate, 1, maxRate, "a slot is at least 2 s long, so 0.5 is the highest rate"),
		millionths("rates.secondary_rate", &r.Secondary, 0, maxRate, "a slot is at least 2 s long, so 0.5 is the highest rate"),
		schema.Number("rates.large_zone", &r.LargeZone, int64(r.LargeZone), 0, maxMembers, ""),
		millionths("rates.unhealthy", &r.Unhealthy, 1, 1_000_000, "0.55 means 55 % of the members"),
		schema.Number("rates.min_zone", &r.MinZone, int64(r.MinZone), 1, maxMembers, ""),
		schema.Bind("rates.workload_interval", &r.WorkloadInterval, schema.Durations, policy.ShortDuration(r.WorkloadInterval), interval, policy.ShortDuration),
		schema.Duration("rates.patience", &r.Patience, policy.ShortDuration(r.Patience), minPatience, maxWait),
	}
}

func name(c *schema.Checker, at, v string) {
	if !fleet.ValidName(v) {
		c.Add(at, v, "must be a name", `want a-z, 0-9, dots and hyphens, for example "ring-1"`)
	}
}

func file(c *schema.Checker, at, v string) {
	if !path.IsAbs(v) || strings.ContainsRune(v, 0) {
		c.Add(at, v, "must be an absolute path", `for example "/etc/criguard/fleet.pem"`)
	}
}

// millionths is a number with at most six decimals.
func millionths(name string, field *fleet.Millionths, least, most fleet.Millionths, hint string) schema.Key {
	number := func(m fleet.Millionths) float64 { return float64(m) / 1e6 }
	return schema.Bind(name, field, schema.NoUnit, number(*field), func(c *schema.Checker, at string, f float64) fleet.Millionths {
		m, ok := fleet.MillionthsOf(f)
		switch {
		case f < 0 || f < number(least):
			c.Add(at, f, "must be at least "+least.String(), hint)
		case f > number(most):
			c.Add(at, f, "must be at most "+most.String(), hint)
		case !ok:
			c.Add(at, f, "must have at most six decimals", "")
		}
		return m
	}, number)
}

// interval is the time of a lease in etcd.
func interval(c *schema.Checker, at, v string) time.Duration {
	d := c.Duration(at, v, fleet.MinSlot, maxWait)
	if d%time.Second != 0 {
		c.Add(at, v, "must be whole seconds", "it is the time of a lease in etcd")
	}
	return d
}

const endpointHint = `for example ["https://etcd-1.example.com:2379"]`

func endpoints(c *schema.Checker, at string, list []string) []string {
	if len(list) > maxEndpoints {
		c.Add(at, list, fmt.Sprintf("must have at most %d elements", maxEndpoints), endpointHint)
		return nil
	}
	for i, v := range list {
		if _, ok := endpoint(v); !ok {
			c.Add(fmt.Sprintf("%s[%d]", at, i+1), v, "must be a URL of a host and a port", endpointHint)
		}
	}
	return list
}

// endpoint parses the URL of a member of etcd.
func endpoint(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return nil, false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	bare := url.URL{Scheme: u.Scheme, Host: u.Host}
	return u, err == nil && port > 0 && bare.String() == text
}

// compare checks keys against each other.
func compare(c *schema.Checker, cfg fleet.Config) {
	if r := cfg.Rates; r.Secondary > r.Rate && !c.Has("rates.rate", "rates.secondary_rate") {
		c.Add("rates.secondary_rate", r.Secondary, "must be at most rates.rate, which is "+r.Rate.String(), "it is the rate of zones in trouble")
	}
	if t := cfg.TLS; t.Insecure && t != (fleet.TLS{Insecure: true}) {
		c.Add("tls.insecure", true, "must not be set with a certificate", "delete it, or ca, cert and key")
	}
	for i, e := range cfg.Endpoints {
		at := fmt.Sprintf("endpoints[%d]", i+1)
		switch u, ok := endpoint(e); {
		case !ok:
		case cfg.TLS.Insecure && u.Scheme != "http":
			c.Add(at, e, "must begin with http:// because tls.insecure is set", "")
		case cfg.TLS.Insecure && !fleet.IsLoopback(u.Hostname()):
			c.Add(at, e, "must be a loopback address because tls.insecure is set", "127.0.0.1 or [::1]; for another host, set tls.ca, tls.cert and tls.key: plain text shows the fleet to the network")
		case !cfg.TLS.Insecure && u.Scheme != "https":
			c.Add(at, e, "must begin with https://", "tls.insecure = true allows plain text to loopback addresses")
		}
	}
}

// require checks that the keys without a default are set.
func require(c *schema.Checker, cfg fleet.Config) {
	for _, k := range []struct {
		name, hint string
		set        bool
	}{
		{"fleet", `for example fleet = "edge-eu"`, cfg.Fleet != ""},
		{"endpoints", "for example endpoints = " + endpointHint[len("for example "):], len(cfg.Endpoints) > 0},
		{"tls.ca", "the certificates that etcd's certificate is checked with", cfg.TLS.Insecure || cfg.TLS.CA != ""},
		{"tls.cert", "the node's certificate", cfg.TLS.Insecure || cfg.TLS.Cert != ""},
		{"tls.key", "the key of the node's certificate", cfg.TLS.Insecure || cfg.TLS.Key != ""},
	} {
		if !k.set {
			c.Add(k.name, nil, "must be set", k.hint)
		}
	}
}
