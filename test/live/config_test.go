package live_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/criguard/criguard/policy"
)

// config is a test's part of criguard's configuration. Hard thresholds that it does not name are
// off, because a busy machine may meet them by itself.
type config struct {
	hard, soft thresholds
	grace      thresholds        // of the soft thresholds
	reclaim    thresholds        // minimum reclaim
	eviction   map[string]string // keys of [eviction]
	history    string            // directory; "": the node's own
	timeout    string            // the runtime's; "": 10s
	logs       string            // of the pods; "": the lab's
	more       string            // further tables
}

type thresholds map[policy.Signal]string

// bytes formats an amount as in the configuration.
func bytes(n int64) string { return fmt.Sprint(n) }

// configure writes the configuration: the lab's paths and the test's part.
func (n *node) configure(c config) {
	n.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "[runtime]\nendpoint = %q\ntimeout = %q\n", n.endpoint, cmp.Or(c.timeout, "10s"))
	fmt.Fprintf(&b, "[node]\nroot_dir = %q\npod_log_dir = %q\npods_cgroup = %q\n", n.lab.KubeletRoot(), cmp.Or(c.logs, n.lab.PodLogDir()), n.lab.PodsCgroup())
	fmt.Fprintf(&b, "[history]\ndir = %q\n", cmp.Or(c.history, n.dir))
	b.WriteString("[eviction]\n")
	for _, key := range slices.Sorted(maps.Keys(c.eviction)) {
		fmt.Fprintf(&b, "%s = %q\n", key, c.eviction[key])
	}
	hard := thresholds{policy.AllocatableMemoryAvailable: "0%"}
	for name := range policy.DefaultHard() {
		s, err := policy.ParseSignal(name)
		if err != nil {
			n.Fatal(err)
		}
		hard[s] = "0%"
	}
	maps.Copy(hard, c.hard)
	for _, table := range []struct {
		name   string
		values thresholds
	}{{"hard", hard}, {"soft", c.soft}, {"soft_grace_period", c.grace}, {"minimum_reclaim", c.reclaim}} {
		fmt.Fprintf(&b, "[eviction.%s]\n", table.name)
		for _, s := range slices.Sorted(maps.Keys(table.values)) {
			fmt.Fprintf(&b, "%q = %q\n", s.String(), table.values[s])
		}
	}
	b.WriteString(c.more)
	n.harness().Configure(b.String())
}

func (n *node) config() string { return n.harness().Config() }
