package guard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
)

func choice[T ~string](c checker, key, value string, allowed ...T) T {
	if slices.Contains(allowed, T(value)) {
		return T(value)
	}
	var names []string
	for _, a := range allowed {
		names = append(names, string(a))
	}
	c.add(key, value, "must be one of "+strings.Join(names, ", "), nearestWord(value, names))
	return ""
}

func (c checker) duration(key string, text durationText, least, most time.Duration) time.Duration {
	value := string(text)
	d, err := time.ParseDuration(value)
	switch bare := strings.TrimRight(value, "0123456789."); {
	case err != nil && bare == "" && value != "":
		c.add(key, value, "must have a unit", fmt.Sprintf("%q is seconds; units are ms, s, m and h", value+"s"))
	case err != nil && strings.HasSuffix(value, "d"):
		c.add(key, value, "must be a duration", `the largest unit is the hour; a day is "24h"`)
	case err != nil:
		c.add(key, value, "must be a duration", `as "500ms", "30s" or "1h30m"`)
	case d < 0:
		c.add(key, value, "must not be negative", fmt.Sprintf("the least is %q", shortDuration(least)))
	case d < least:
		c.add(key, value, "must be at least "+shortDuration(least), "")
	case d > most:
		c.add(key, value, "must be at most "+shortDuration(most), "")
	}
	return d
}

func (c checker) number(key string, n, least, most int, hint string) int {
	switch {
	case n < least:
		c.add(key, n, fmt.Sprintf("must be at least %d", least), hint)
	case n > most:
		c.add(key, n, fmt.Sprintf("must be at most %d", most), hint)
	}
	return n
}

func (c checker) quantity(key string, text quantityText) policy.Quantity {
	q, err := policy.ParseQuantity(string(text))
	if bad := new(policy.QuantityError); errors.As(err, &bad) {
		c.add(key, string(text), bad.Rule, bad.Hint)
	}
	return q
}

func (c checker) percent(key string, text quantityText) policy.Quantity {
	q := c.quantity(key, text)
	if !c.has(key) && !q.IsPercent() {
		c.add(key, string(text), "must be a percentage", `as "85%"`)
	}
	return q
}

// dir is a directory that must be named.
func (c checker) dir(key, value string) string {
	if !path.IsAbs(value) || strings.ContainsRune(value, 0) {
		c.add(key, value, "must be an absolute path", `as "/var/lib/criguard"`)
	}
	return value
}

func (c checker) dirOrFound(key, value string) string {
	if value == "" {
		return ""
	}
	if !path.IsAbs(value) || strings.ContainsRune(value, 0) {
		c.add(key, value, "must be an absolute path", `"" lets criguard find it`)
	}
	return value
}

func (c checker) cgroup(key, value string) string {
	if value != "" && (!path.IsAbs(value) || path.Clean(value) != value || value == "/" || strings.ContainsRune(value, 0)) {
		c.add(key, value, "must be a path below the cgroup root", `as "/kubepods" or "/kubepods.slice"; "" lets criguard find it`)
	}
	return value
}

// maxSocketPath is what sockaddr_un has room for.
const maxSocketPath = 107

// endpoint is a unix socket, as "unix:///path" or a bare path.
func (c checker) endpoint(key, value string) string {
	const hint = `as "unix:///run/containerd/containerd.sock"; "" lets criguard find it`
	scheme, socket, ok := strings.Cut(value, "://")
	if !ok {
		scheme, socket = "unix", value
	}
	switch {
	case value == "":
	case scheme != "unix":
		c.add(key, value, "must be a unix socket", hint)
	case !path.IsAbs(socket) || strings.ContainsRune(socket, 0):
		c.add(key, value, "must have an absolute path", hint)
	case len(socket) > maxSocketPath:
		c.add(key, value, fmt.Sprintf("must have a path of at most %d bytes", maxSocketPath), "a longer one is no socket's; link to it")
	}
	return value
}

// listen is a loopback address: the metrics need no password, and name what runs
// out on the node.
func (c checker) listen(key, value string) string {
	if value == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(value)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || number == 0 {
		c.add(key, value, "must be an address and a port", `as "127.0.0.1:9480"`)
		return value
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		c.add(key, value, "must be a loopback address", `as "127.0.0.1:9480": whoever reaches the port reads the metrics`)
	}
	return value
}

// textfile is a file that node_exporter's textfile collector reads.
func (c checker) textfile(key, value string) string {
	if value != "" && (!path.IsAbs(value) || path.Ext(value) != ".prom" || strings.ContainsRune(value, 0)) {
		c.add(key, value, "must be an absolute path that ends in .prom", `as "/var/lib/prometheus/node-exporter/criguard.prom"; others are not read`)
	}
	return value
}

const globHint = `"*" is any text, "?" any letter, "[ab]" one of these`

func (c checker) glob(key, pattern string) {
	if _, err := path.Match(pattern, ""); err != nil {
		c.add(key, pattern, "must be a name or a glob", globHint)
	}
}

func (c checker) globs(key string, patterns []string) []string {
	for i, p := range patterns {
		at := fmt.Sprintf("%s[%d]", key, i+1)
		if c.glob(at, p); p == "" {
			c.add(at, p, "must be a name or a glob", globHint)
		}
	}
	return orNil(patterns)
}

// imagePatterns know * and ? alone, and * goes beyond slashes.
func (c checker) imagePatterns(key string, patterns []string) []string {
	for i, p := range patterns {
		if p == "" || strings.ContainsAny(p, `[]\ `) {
			c.add(fmt.Sprintf("%s[%d]", key, i+1), p, "must be the pattern of an image's name", `as "registry.example.com/base/*"; "*" is any text, "?" any letter`)
		}
	}
	return orNil(patterns)
}

// orNil makes no items and an empty list the same.
func orNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// shortDuration writes a duration without the units that are 0: "5m", not "5m0s".
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
