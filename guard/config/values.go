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

	"github.com/criguard/criguard/cri/socket"
	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/policy"
)

func choose[T ~string](c *schema.Checker, key, value string, allowed ...T) T {
	if slices.Contains(allowed, T(value)) {
		return T(value)
	}
	names := convertAll(allowed, asString)
	c.Add(key, value, "must be one of "+strings.Join(names, ", "), schema.SuggestWord(value, names))
	return ""
}

func parseQuantity(c *schema.Checker, key, text string) policy.Quantity {
	q, err := policy.ParseQuantity(text)
	if bad := new(policy.QuantityError); errors.As(err, &bad) {
		c.Add(key, text, bad.Rule, bad.Hint)
	}
	return q
}

func percent(c *schema.Checker, key, text string) policy.Quantity {
	q := parseQuantity(c, key, text)
	if !c.Has(key) && !q.IsPercent() {
		c.Add(key, text, "must be a percentage", `for example "85%"`)
	}
	return q
}

func dir(c *schema.Checker, key, value string) {
	absolute(c, key, value, `for example "/var/lib/criguard"`)
}

// foundDir is a directory that criguard finds unless it is set.
func foundDir(c *schema.Checker, key, value string) { absolute(c, key, value, `"" = detect it`) }

func absolute(c *schema.Checker, key, value, hint string) {
	if !isAbsolute(value) {
		c.Add(key, value, "must be an absolute path", hint)
	}
}

func isAbsolute(name string) bool { return path.IsAbs(name) && !strings.ContainsRune(name, 0) }

func cgroup(c *schema.Checker, key, value string) {
	if !isAbsolute(value) || path.Clean(value) != value || value == "/" {
		c.Add(key, value, "must be a path below the cgroup root", `for example "/kubepods" or "/kubepods.slice"; "" = detect it`)
	}
}

// MaxSocketPath is what sockaddr_un has room for.
const MaxSocketPath = 107

// endpoint is a unix socket, see socket.Path.
func endpoint(c *schema.Checker, key, value string) {
	const hint = `for example "unix:///run/containerd/containerd.sock"; "" = detect it`
	file, err := socket.Path(value)
	switch {
	case err != nil && strings.Contains(value, "://") && !strings.HasPrefix(value, "unix:"):
		c.Add(key, value, "must be a unix socket", hint)
	case err != nil || !isAbsolute(file):
		c.Add(key, value, "must have an absolute path", hint)
	case len(file) > MaxSocketPath:
		c.Add(key, value, fmt.Sprintf("must have a path of at most %d bytes", MaxSocketPath), "the kernel allows no longer socket path; use a symbolic link")
	}
}

// listen is a loopback address: the metrics need no password, and name what runs out on the node.
func listen(c *schema.Checker, key, value string) {
	host, port, err := net.SplitHostPort(value)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || number == 0 {
		c.Add(key, value, "must be an address and a port", `for example "127.0.0.1:9480"`)
		return
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		c.Add(key, value, "must be a loopback address", `for example "127.0.0.1:9480": anyone who reaches the port can read the metrics`)
	}
}

// textfile is a file that node_exporter's textfile collector reads.
func textfile(c *schema.Checker, key, value string) {
	if !isAbsolute(value) || path.Ext(value) != ".prom" {
		c.Add(key, value, "must be an absolute path that ends in .prom", `for example "/var/lib/prometheus/node-exporter/criguard.prom"; node_exporter reads no other files`)
	}
}

const globHint = `"*" matches any text, "?" any letter, "[ab]" one of these letters`

func glob(c *schema.Checker, key, pattern string) {
	if _, err := path.Match(pattern, ""); err != nil {
		c.Add(key, pattern, "must be a name or a glob", globHint)
	}
}

// nameGlob is a glob for a namespace or the name of a pod. A rule that can match none would protect none.
func nameGlob(c *schema.Checker, key, pattern string) {
	switch glob(c, key, pattern); {
	case strings.Contains(pattern, "/"):
		c.Add(key, pattern, "must not contain a slash", "the namespace and the name of a pod are separate keys")
	case strings.TrimSpace(pattern) != pattern:
		c.Add(key, pattern, "must not begin or end with a blank", "")
	}
}

func namespace(c *schema.Checker, key, pattern string) {
	if nameGlob(c, key, pattern); pattern == "" {
		c.Add(key, pattern, "must be a name or a glob", globHint)
	}
}

// imagePattern is a pattern that knows * and ? alone, and whose * goes beyond slashes.
func imagePattern(c *schema.Checker, key, pattern string) {
	if pattern == "" || strings.ContainsAny(pattern, `[]\ `) {
		c.Add(key, pattern, "must be an image name pattern", `for example "registry.example.com/base/*"; "*" matches any text, "?" any letter`)
	}
}

func priority(c *schema.Checker, at string, n int64) int64 {
	if n < math.MinInt32 || n > math.MaxInt32 {
		c.Add(at, n, fmt.Sprintf("must be between %d and %d", math.MinInt32, math.MaxInt32), "the range of priorities in Kubernetes")
	}
	return n
}

// storage returns an amount of bytes.
func storage(c *schema.Checker, at, text string) int64 {
	q := parseQuantity(c, at, text)
	if q.IsPercent() || q.IsZero() {
		c.Add(at, text, "must be an amount above 0", `for example "2Gi"`)
	}
	return q.Of(0)
}

func inBytes(n int64) string { return policy.Bytes(n).String() }

// labels checks a rule's labels, and that the rule selects pods: an empty one would match every pod.
func labels(c *schema.Checker, at string, r policy.Rule, labels map[string]string) map[string]string {
	if len(labels) > 0 {
		r.Labels = labels
	}
	if errors.Is(r.Validate(), policy.ErrEmptyRule) && !c.Has(at) {
		c.Add(strings.TrimSuffix(at, ".labels"), nil, "must select pods", `set namespace, name or labels; name = "*" matches every pod`)
	}
	for _, name := range sortedKeys(labels) {
		glob(c, schema.JoinKey(at, name), labels[name])
	}
	return r.Labels
}

// Limits of hooks.
const (
	maxHooks         = 16
	maxHookArguments = 64
)

func events(c *schema.Checker, at string, names []string) (kinds []EventKind) {
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", at, i+1)
		kind := choose(c, at, name, EventCondition, EventStop, EventAlarm)
		if slices.Contains(kinds, kind) && !c.Has(at) {
			c.Add(at, name, "must be listed only once", "")
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

func eventNames(kinds []EventKind) []string { return convertAll(kinds, asString) }

const commandHint = `for example command = ["/usr/local/bin/on-event", "--verbose"]; to use a shell: ["/bin/sh", "-c", "…"]`

// command checks a program and its arguments. It does not check that the program exists: a later
// mount or installation may provide it. A missing program is reported when it is run.
func command(c *schema.Checker, at string, words []string) []string {
	switch {
	case !path.IsAbs(words[0]):
		c.Add(at+"[1]", words[0], "must be an absolute path", commandHint)
	case len(words) > maxHookArguments:
		c.Add(at, nil, fmt.Sprintf("must have at most %d elements", maxHookArguments), commandHint)
	}
	for i, w := range words {
		if strings.ContainsRune(w, 0) {
			c.Add(fmt.Sprintf("%s[%d]", at, i+1), w, "must not contain a NUL", commandHint)
		}
	}
	return words
}
