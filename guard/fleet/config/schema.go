package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

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

// key is one key of the file: set checks a value and assigns it to its field.
type key struct {
	name string
	set  func(c *checker, at string, v any)
}

// allKeys lists every key, bound to a configuration.
func allKeys(cfg *fleet.Config) []key {
	t, r := &cfg.TLS, &cfg.Rates
	return []key{
		{"fleet", name(&cfg.Fleet)},
		{"zone", name(&cfg.Zone)},
		{"node", name(&cfg.Node)},
		{"endpoints", endpoints(&cfg.Endpoints)},
		{"tls.ca", file(&t.CA)},
		{"tls.cert", file(&t.Cert)},
		{"tls.key", file(&t.Key)},
		{"tls.insecure", flag(&t.Insecure)},
		{"rates.rate", number(&r.Rate, 1, maxRate, "a slot is at least 2 s long, so 0.5 is the highest rate")},
		{"rates.secondary_rate", number(&r.Secondary, 0, maxRate, "a slot is at least 2 s long, so 0.5 is the highest rate")},
		{"rates.large_zone", count(&r.LargeZone, 0)},
		{"rates.unhealthy", number(&r.Unhealthy, 1, 1_000_000, "0.55 means 55 % of the members")},
		{"rates.min_zone", count(&r.MinZone, 1)},
		{"rates.workload_interval", duration(&r.WorkloadInterval, fleet.MinSlot, time.Second)},
		{"rates.patience", duration(&r.Patience, minPatience, time.Nanosecond)},
	}
}

const nameHint = `want a-z, 0-9, dots and hyphens, for example "ring-1"`

// text passes a string on, and reports any other value.
func text(set func(c *checker, at, v string)) func(c *checker, at string, v any) {
	return func(c *checker, at string, v any) {
		if s, ok := v.(string); ok {
			set(c, at, s)
		} else {
			c.add(at, v, "must be a string", "write it with quotes")
		}
	}
}

func name(field *string) func(c *checker, at string, v any) {
	return text(func(c *checker, at, v string) {
		if v != "" && !fleet.ValidName(v) {
			c.add(at, v, "must be a name", nameHint)
		}
		*field = v
	})
}

func file(field *string) func(c *checker, at string, v any) {
	return text(func(c *checker, at, v string) {
		if v != "" && (!path.IsAbs(v) || strings.ContainsRune(v, 0)) {
			c.add(at, v, "must be an absolute path", `for example "/etc/criguard/fleet.pem"`)
		}
		*field = v
	})
}

func flag(field *bool) func(c *checker, at string, v any) {
	return func(c *checker, at string, v any) {
		b, ok := v.(bool)
		if !ok {
			c.add(at, v, "must be true or false", "write it without quotes")
		}
		*field = b
	}
}

// number is a number with at most six decimals.
func number(field *fleet.Millionths, least, most fleet.Millionths, hint string) func(c *checker, at string, v any) {
	return func(c *checker, at string, v any) {
		var f float64
		switch v := v.(type) {
		case float64:
			f = v
		case int64:
			f = float64(v)
		default:
			c.add(at, v, "must be a number", "write it without quotes, for example 0.1")
			return
		}
		n, ok := fleet.MillionthsOf(f)
		switch {
		case f < 0 || f < float64(least)/1e6:
			c.add(at, v, "must be at least "+least.String(), hint)
		case f > float64(most)/1e6:
			c.add(at, v, "must be at most "+most.String(), hint)
		case !ok:
			c.add(at, v, "must have at most six decimals", "")
		}
		*field = n
	}
}

// count is a number of members.
func count(field *int, least int64) func(c *checker, at string, v any) {
	return func(c *checker, at string, v any) {
		n, ok := v.(int64)
		switch {
		case !ok:
			c.add(at, v, "must be a whole number", "write it without quotes")
		case n < least:
			c.add(at, v, fmt.Sprintf("must be at least %d", least), "")
		case n > maxMembers:
			c.add(at, v, fmt.Sprintf("must be at most %d", maxMembers), "")
		default:
			*field = int(n)
		}
	}
}

func duration(field *time.Duration, least, unit time.Duration) func(c *checker, at string, v any) {
	return text(func(c *checker, at, v string) {
		d, err := time.ParseDuration(v)
		switch {
		case err != nil:
			c.add(at, v, "must be a duration", `for example "90s", "5m" or "1h30m"`)
		case d < least:
			c.add(at, v, "must be at least "+policy.ShortDuration(least), "")
		case d > maxWait:
			c.add(at, v, "must be at most "+policy.ShortDuration(maxWait), "")
		case d%unit != 0:
			c.add(at, v, "must be whole seconds", "it is the time of a lease in etcd")
		}
		*field = d
	})
}

const endpointHint = `for example ["https://etcd-1.example.com:2379"]`

func endpoints(field *[]string) func(c *checker, at string, v any) {
	return func(c *checker, at string, v any) {
		list, ok := v.([]any)
		switch {
		case !ok:
			c.add(at, v, "must be a list", endpointHint)
			return
		case len(list) > maxEndpoints:
			c.add(at, v, fmt.Sprintf("must have at most %d elements", maxEndpoints), endpointHint)
			return
		}
		*field = make([]string, len(list))
		for i, item := range list {
			text(func(c *checker, at, v string) {
				if _, ok := endpoint(v); !ok {
					c.add(at, v, "must be a URL of a host and a port", endpointHint)
				}
				(*field)[i] = v
			})(c, fmt.Sprintf("%s[%d]", at, i+1), item)
		}
	}
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

// isLoopback reports whether a host is this one. Names but localhost are not resolved.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// compare checks keys against each other.
func (c *checker) compare(cfg *fleet.Config) {
	if r := cfg.Rates; r.Secondary > r.Rate && !c.has("rates.rate", "rates.secondary_rate") {
		c.add("rates.secondary_rate", r.Secondary, "must be at most rates.rate, which is "+r.Rate.String(), "it is the rate of zones in trouble")
	}
	if t := cfg.TLS; t.Insecure && t != (fleet.TLS{Insecure: true}) {
		c.add("tls.insecure", true, "must not be set with a certificate", "delete it, or ca, cert and key")
	}
	for i, e := range cfg.Endpoints {
		at := fmt.Sprintf("endpoints[%d]", i+1)
		switch u, ok := endpoint(e); {
		case !ok:
		case cfg.TLS.Insecure && u.Scheme != "http":
			c.add(at, e, "must begin with http:// because tls.insecure is set", "")
		case cfg.TLS.Insecure && !isLoopback(u.Hostname()):
			c.add(at, e, "must be a loopback address because tls.insecure is set", "plain text shows the fleet's key to the network; set tls.ca, tls.cert and tls.key")
		case !cfg.TLS.Insecure && u.Scheme != "https":
			c.add(at, e, "must begin with https://", "tls.insecure = true allows plain text to loopback addresses")
		}
	}
}

// require checks that the keys without a default are set.
func (c *checker) require(cfg *fleet.Config) {
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
		if !k.set && !c.has(k.name) {
			c.add(k.name, nil, "must be set", k.hint)
		}
	}
}
