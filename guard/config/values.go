package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/criguard/criguard/cri/socket"
	"github.com/criguard/criguard/policy"
)

func choose[T ~string](c checker, key, value string, allowed ...T) T {
	if slices.Contains(allowed, T(value)) {
		return T(value)
	}
	names := convertAll(allowed, asString)
	c.add(key, value, "must be one of "+strings.Join(names, ", "), nearestWord(value, names))
	return ""
}

func (c checker) duration(key, value string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(value)
	switch bare := strings.TrimRight(value, "0123456789."); {
	case err != nil && bare == "" && value != "":
		c.add(key, value, "must have a unit", fmt.Sprintf("%q means seconds; the units are ms, s, m and h", value+"s"))
	case err != nil && strings.HasSuffix(value, "d"):
		c.add(key, value, "must be a duration", `the largest unit is the hour; a day is "24h"`)
	case err != nil:
		c.add(key, value, "must be a duration", `for example "500ms", "30s" or "1h30m"`)
	case d < 0:
		c.add(key, value, "must not be negative", fmt.Sprintf("the minimum is %q", policy.ShortDuration(least)))
	case d < least:
		c.add(key, value, "must be at least "+policy.ShortDuration(least), "")
	case d > most:
		c.add(key, value, "must be at most "+policy.ShortDuration(most), "")
	}
	return d
}

func (c checker) quantity(key, text string) policy.Quantity {
	q, err := policy.ParseQuantity(text)
	if bad := new(policy.QuantityError); errors.As(err, &bad) {
		c.add(key, text, bad.Rule, bad.Hint)
	}
	return q
}

func (c checker) percent(key, text string) policy.Quantity {
	q := c.quantity(key, text)
	if !c.has(key) && !q.IsPercent() {
		c.add(key, text, "must be a percentage", `for example "85%"`)
	}
	return q
}

func (c checker) dir(key, value string) { c.absolute(key, value, `for example "/var/lib/criguard"`) }

// foundDir is a directory that criguard finds unless it is set.
func (c checker) foundDir(key, value string) { c.absolute(key, value, `"" = detect it`) }

func (c checker) absolute(key, value, hint string) {
	if !isAbsolute(value) {
		c.add(key, value, "must be an absolute path", hint)
	}
}

func isAbsolute(name string) bool { return path.IsAbs(name) && !strings.ContainsRune(name, 0) }

func (c checker) cgroup(key, value string) {
	if !isAbsolute(value) || path.Clean(value) != value || value == "/" {
		c.add(key, value, "must be a path below the cgroup root", `for example "/kubepods" or "/kubepods.slice"; "" = detect it`)
	}
}

// MaxSocketPath is what sockaddr_un has room for.
const MaxSocketPath = 107

// endpoint is a unix socket, see socket.Path.
func (c checker) endpoint(key, value string) {
	const hint = `for example "unix:///run/containerd/containerd.sock"; "" = detect it`
	file, err := socket.Path(value)
	switch {
	case err != nil && strings.Contains(value, "://") && !strings.HasPrefix(value, "unix:"):
		c.add(key, value, "must be a unix socket", hint)
	case err != nil || !isAbsolute(file):
		c.add(key, value, "must have an absolute path", hint)
	case len(file) > MaxSocketPath:
		c.add(key, value, fmt.Sprintf("must have a path of at most %d bytes", MaxSocketPath), "the kernel allows no longer socket path; use a symbolic link")
	}
}

// listen is a loopback address: the metrics need no password, and name what runs out on the node.
func (c checker) listen(key, value string) {
	host, port, err := net.SplitHostPort(value)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || number == 0 {
		c.add(key, value, "must be an address and a port", `for example "127.0.0.1:9480"`)
		return
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		c.add(key, value, "must be a loopback address", `for example "127.0.0.1:9480": anyone who reaches the port can read the metrics`)
	}
}

// textfile is a file that node_exporter's textfile collector reads.
func (c checker) textfile(key, value string) {
	if !isAbsolute(value) || path.Ext(value) != ".prom" {
		c.add(key, value, "must be an absolute path that ends in .prom", `for example "/var/lib/prometheus/node-exporter/criguard.prom"; node_exporter reads no other files`)
	}
}

const globHint = `"*" matches any text, "?" any letter, "[ab]" one of these letters`

func (c checker) glob(key, pattern string) {
	if _, err := path.Match(pattern, ""); err != nil {
		c.add(key, pattern, "must be a name or a glob", globHint)
	}
}

func (c checker) namespace(key, pattern string) {
	if c.glob(key, pattern); pattern == "" {
		c.add(key, pattern, "must be a name or a glob", globHint)
	}
}

// imagePattern is a pattern that knows * and ? alone, and whose * goes beyond slashes.
func (c checker) imagePattern(key, pattern string) {
	if pattern == "" || strings.ContainsAny(pattern, `[]\ `) {
		c.add(key, pattern, "must be an image name pattern", `for example "registry.example.com/base/*"; "*" matches any text, "?" any letter`)
	}
}

func (c checker) priority(at string, n int64) int64 {
	if n < math.MinInt32 || n > math.MaxInt32 {
		c.add(at, n, fmt.Sprintf("must be between %d and %d", math.MinInt32, math.MaxInt32), "the range of priorities in Kubernetes")
	}
	return n
}

// storage returns an amount of bytes.
func (c checker) storage(at, text string) int64 {
	q := c.quantity(at, text)
	if q.IsPercent() || q.IsZero() {
		c.add(at, text, "must be an amount above 0", `for example "2Gi"`)
	}
	return q.Of(0)
}

func inBytes(n int64) string { return policy.Bytes(n).String() }

// labels checks a rule's labels, and that the rule selects pods: an empty one would match every pod.
func (c checker) labels(at string, r policy.Rule, labels map[string]string) map[string]string {
	if len(labels) > 0 {
		r.Labels = labels
	}
	if errors.Is(r.Validate(), policy.ErrEmptyRule) {
		c.add(strings.TrimSuffix(at, ".labels"), nil, "must select pods", `set namespace, name or labels; name = "*" matches every pod`)
	}
	for _, name := range sortedKeys(labels) {
		c.glob(JoinKey(at, name), labels[name])
	}
	return r.Labels
}

// Limits of hooks.
const (
	maxHooks         = 16
	maxHookArguments = 64
)

func (c checker) events(at string, names []string) (kinds []EventKind) {
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", at, i+1)
		kind := choose(c, at, name, EventCondition, EventStop, EventAlarm)
		if slices.Contains(kinds, kind) && !c.has(at) {
			c.add(at, name, "must be listed only once", "")
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

func eventNames(kinds []EventKind) []string { return convertAll(kinds, asString) }

const commandHint = `for example command = ["/usr/local/bin/on-event", "--verbose"]; to use a shell: ["/bin/sh", "-c", "…"]`

// command checks a program and its arguments. It does not check that the program exists: a later
// mount or installation may provide it. A missing program is reported when it is run.
func (c checker) command(at string, words []string) []string {
	switch {
	case !path.IsAbs(words[0]):
		c.add(at+"[1]", words[0], "must be an absolute path", commandHint)
	case len(words) > maxHookArguments:
		c.add(at, nil, fmt.Sprintf("must have at most %d elements", maxHookArguments), commandHint)
	}
	for i, w := range words {
		if strings.ContainsRune(w, 0) {
			c.add(fmt.Sprintf("%s[%d]", at, i+1), w, "must not contain a NUL", commandHint)
		}
	}
	return words
}
