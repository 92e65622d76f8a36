package live_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
)

// config is what a test wants of criguard's configuration. Hard thresholds that it
// does not name are off: a busy machine may meet them by itself.
type config struct {
	mode       string
	hard, soft thresholds
	grace      thresholds        // of the soft ones
	reclaim    thresholds        // minimum reclaim
	eviction   map[string]string // keys of [eviction]
	timeout    time.Duration     // of a call to the runtime; 0 = 10 s
	history    string            // directory; "" = the node's own
	more       string            // further tables
}

type thresholds map[policy.Signal]string

// bytes writes an amount as the configuration has it.
func bytes(n int64) string { return fmt.Sprint(n) }

// configure writes the configuration: where the lab is, and what the test wants.
func (n *node) configure(c config) {
	n.Helper()
	var b strings.Builder
	if c.mode != "" {
		fmt.Fprintf(&b, "mode = %q\n", c.mode)
	}
	fmt.Fprintf(&b, "[runtime]\nendpoint = %q\ntimeout = %q\n", n.endpoint, cmp.Or(c.timeout, 10*time.Second))
	fmt.Fprintf(&b, "[node]\nroot_dir = %q\npod_log_dir = %q\npods_cgroup = %q\n", n.lab.KubeletRoot(), n.lab.PodLogDir(), n.lab.PodsCgroup())
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
	if err := os.WriteFile(n.config(), []byte(b.String()), 0o600); err != nil {
		n.Fatal(err)
	}
}

func (n *node) config() string { return filepath.Join(n.dir, "config.toml") }
