package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/criguard/criguard/guard/config/schema"
)

// The limits of package schema.
const (
	maxFile     = 256 << 10
	maxDepth    = 16
	maxMistakes = 100
	maxShown    = 120
)

// goodConfig parses a configuration that must be valid.
func goodConfig(t *testing.T, text string) Config {
	t.Helper()
	cfg, err := Parse("test.toml", strings.NewReader(text))
	if err != nil {
		t.Fatalf("parse:\n%s\n%v", text, err)
	}
	return cfg
}

// mistakesIn parses a configuration that must be invalid, and returns its mistakes.
func mistakesIn(t *testing.T, text string) []*schema.Error {
	t.Helper()
	cfg, err := Parse("test.toml", strings.NewReader(text))
	if err == nil {
		t.Fatalf("no error for:\n%s\ngot %+v", text, cfg)
	}
	return mistakesOf(t, err)
}

func mistakesOf(t *testing.T, err error) []*schema.Error {
	t.Helper()
	if !errors.Is(err, schema.ErrInvalid) {
		t.Fatalf("%v is not ErrInvalid", err)
	}
	list := schema.Errors(err)
	for _, e := range list {
		if !errors.Is(e, schema.ErrInvalid) {
			t.Fatalf("%v is not ErrInvalid", e)
		}
	}
	return list
}

func TestConfigMistakes(t *testing.T) {
	const (
		glob     = `"*" matches any text, "?" any letter, "[ab]" one of these letters`
		endpoint = `for example "unix:///run/containerd/containerd.sock"; "" = detect it`
		found    = `"" = detect it`
		cgroup   = `for example "/kubepods" or "/kubepods.slice"; "" = detect it`
		address  = `for example "127.0.0.1:9480"`
		loopback = `for example "127.0.0.1:9480": anyone who reaches the port can read the metrics`
		off      = `"0%" or "100%" switches a threshold off`
		pattern  = `for example "registry.example.com/base/*"; "*" matches any text, "?" any letter`
		rankKeys = "must be one of culprit, over_request, priority, usage, growth, qos"
		example  = "config.example.toml lists every key"
	)
	for _, test := range []struct {
		name, text             string
		line                   int
		key, value, rule, hint string
	}{
		// TOML syntax.
		{"syntax", "mode = \"observe\"\n[eviction\ninterval = \"10s\"\n", 2, "eviction", "", "expected '.' or ']' to end table name, but got '\\n' instead", `the name of a table ends with a bracket, for example [images]`},
		{"another encoding", "mode = 'observe'\n# caf\xe9\n", 2, "", "", "must be text in UTF-8", "save it in this encoding; a file of NULs was damaged, as by a power cut"},
		{"damaged", "\x00\x00\x00\x00", 1, "", "", "must be text in UTF-8", "save it in this encoding; a file of NULs was damaged, as by a power cut"},
		{"no value", "# one\n[node]\nproc =\n", 3, "node.proc", "", "expected value but found '\\n' instead", `strings need quotes, for example interval = "10s"; tables need brackets, for example [images]`},
		{"value without quotes", "[eviction]\ninterval = 10s\n", 2, "eviction.interval", "", "expected a top-level item to end with a newline, comment, or EOF, but got 's' instead", `strings need quotes, for example interval = "10s"; tables need brackets, for example [images]`},
		{"key twice", "mode = \"observe\"\nmode = \"enforce\"\n", 2, "mode", "", "Key 'mode' has already been defined", "set each key and define each [table] only once"},
		{"table twice", "[runtime]\n[node]\n[runtime]\n", 3, "runtime", "", "Key 'runtime' has already been defined", "set each key and define each [table] only once"},
		{"depth", "a = " + strings.Repeat("[", 17), 1, "", "", "lists and tables must have at most 16 levels", "no criguard key is nested this deeply"},
		{"depth of inline tables", "\n" + strings.Repeat("a = {", 17), 2, "", "", "lists and tables must have at most 16 levels", "no criguard key is nested this deeply"},
		{"parts", strings.Repeat("a.", 16) + "a = 1", 1, "", "", "keys must have at most 16 parts", "no criguard key is nested this deeply"},
		{"parts in a header", "[" + strings.Repeat("a . ", 16) + "a]", 1, "", "", "keys must have at most 16 parts", "no criguard key is nested this deeply"},
		{"parts in an inline table", "x = {" + strings.Repeat("'a'.", 16) + "a = 1}", 1, "", "", "keys must have at most 16 parts", "no criguard key is nested this deeply"},
		{"size", "#" + strings.Repeat(" ", maxFile), 0, "", "", "must be at most 256 KiB", "this is probably not a configuration file"},

		// Unknown keys.
		{"unknown key", "colour = 1", 1, "colour", "", "unknown key", example},
		{"misspelt key", "\nmod = 1", 2, "mod", "", "unknown key", "did you mean mode?"},
		{"misspelt table", "[imagse]\nprune = 1", 1, "imagse", "", "unknown key", "did you mean [images]?"},
		{"misspelt key in a table", "[images]\nunused_grase = '1h'", 2, "images.unused_grase", "", "unknown key", "did you mean [images] unused_grace?"},
		{"other spelling", "[containers]\nmaxPerContainer = 2", 2, "containers.maxPerContainer", "", "unknown key", "did you mean [containers] max_per_container?"},
		{"key of another table", "[history]\nmin_age = '1h'", 2, "history.min_age", "", "unknown key", "did you mean [containers] min_age or [images] min_age?"},
		{"key of the top in a table", "[budget]\nprotect_static = false", 2, "budget.protect_static", "", "unknown key", "did you mean protect_static above the first [table]?"},
		{"misspelt key of another table", "[history]\nair_gap_dir = []", 2, "history.air_gap_dir", "", "unknown key", "config.example.toml lists every key"},
		{"beginning of a key", "[eviction]\nmax_pod = '1m'", 2, "eviction.max_pod", "", "unknown key", "did you mean [eviction] max_pod_grace_period?"},
		{"beginning of a key that another table has", "[eviction]\nmemory = 'a'", 2, "eviction.memory", "", "unknown key", "did you mean [eviction] memory_reclaim?"},
		{"part of a key", "[eviction]\ntransition = '1m'", 2, "eviction.transition", "", "unknown key", "did you mean [eviction] pressure_transition_period?"},
		{"key of a rule", "[[priority]]\nname = 'a'\nvalue = 1\n[[priority]]\nname = 'b'\nvalue = 2\nlable = 1", 7, "priority[2].lable", "", "unknown key", "did you mean [[priority]] labels?"},
		{"kubelet's table", "[evictionHard]\n'memory.available' = '1Gi'", 1, "evictionHard", "", "unknown key", "evictionHard is [eviction.hard] in criguard"},
		{"kubelet's option", "[images]\nimageGCHighThresholdPercent = 80", 2, "images.imageGCHighThresholdPercent", "", "unknown key", "imageGCHighThresholdPercent is [images] high in criguard"},
		{"kubelet's flag", "maximum-dead-containers-per-container = 2", 1, "maximum-dead-containers-per-container", "", "unknown key", "maximum-dead-containers-per-container is [containers] max_per_container in criguard"},
		{"kubelet's needless option", "mergeDefaultEvictionSettings = true", 1, "mergeDefaultEvictionSettings", "", "unknown key", "mergeDefaultEvictionSettings is not needed: defaults are always merged"},
		{"very long key", strings.Repeat("k", 300) + " = 1", 1, strings.Repeat("k", 120) + "…", "", "unknown key", example},

		{"key with a bell", "\"a\\u0007\" = 1", 1, `"a\a"`, "", "unknown key", example},

		// Types.
		{"number for a duration", "[eviction]\ninterval = 10", 2, "eviction.interval", "10", "must be a string", `write it with quotes and a unit: "10s"`},
		{"true for a duration", "[eviction]\ninterval = true", 2, "eviction.interval", "true", "must be a string", `write it with quotes and a unit, for example "30s"`},
		{"number for a percentage", "[images]\nhigh = 85", 2, "images.high", "85", "must be a string", `write it with quotes: "85%"`},
		{"float for a percentage", "[images]\nhigh = 0.85", 2, "images.high", "0.85", "must be a string", `write it with quotes, for example "85%"`},
		{"number for a threshold", "[eviction.hard]\n'memory.available' = 100", 2, `eviction.hard."memory.available"`, "100", "must be a string", `write it with quotes: "100" is an amount, "100%" a share`},
		{"date for a string", "mode = 2026-01-02", 1, "mode", "2026-01-02T00:00:00Z", "must be a string", "write it with quotes"},
		{"string for a number", "[history]\npasses = '1000'", 2, "history.passes", `"1000"`, "must be a whole number", "write it without quotes and without a unit"},
		{"float for a number", "[history]\npasses = 1e3", 2, "history.passes", "1000", "must be a whole number", "write it without quotes and without a unit"},
		{"string for a switch", "[containers]\ngc = 'yes'", 2, "containers.gc", `"yes"`, "must be true or false", "write it without quotes"},
		{"value for a table", "images = 'all'", 1, "images", `"all"`, "must be a table", "write [images] on a line of its own"},
		{"value for a table of signals", "[eviction]\nhard = '10%'", 2, "eviction.hard", `"10%"`, "must be a table", "write [eviction.hard] on a line of its own"},
		{"list of tables for a table", "[[images]]\nhigh = '90%'", 1, "images", "[…]", "must be a table", "write [images] on a line of its own"},
		{"value for a list", "[images]\nkeep = 'a'", 2, "images.keep", `"a"`, "must be a list", `write it as ["a"]`},
		{"table for a list of rules", "[protect]\nname = 'a'", 1, "protect", "{…}", "must be a list", "write [[protect]] with two brackets"},
		{"number in a list", "[images]\nkeep = ['a', 2]", 2, "images.keep[2]", "2", "must be a string", "write it with quotes"},
		{"signal without quotes", "[eviction.hard]\nmemory.available = '1Gi'", 2, "eviction.hard.memory", "", "must be a string", `put the whole name in quotes: "memory.available" = …`},
		{"signal as an empty table", "[eviction.hard.memory]", 1, "eviction.hard.memory", "", "must be a string", `put the whole name in quotes, for example "memory.available" = …`},

		// Choices.
		{"mode", "mode = 'observ'", 1, "mode", `"observ"`, "must be one of enforce, observe", `did you mean "observe"?`},
		{"direct_kill", "[eviction]\ndirect_kill = 'always'", 2, "eviction.direct_kill", `"always"`, "must be one of hard-memory, fallback, never", ""},
		{"prune", "[images]\nprune = 'allways'", 2, "images.prune", `"allways"`, "must be one of auto, never, always", `did you mean "always"?`},
		{"admission", "[admission]\nmode = 'on'", 2, "admission.mode", `"on"`, "must be one of off, stop", ""},

		// Durations.
		{"duration without a unit", "[eviction]\nsoft_forgive = '5'", 2, "eviction.soft_forgive", `"5"`, "must have a unit", `"5s" means seconds; the units are ms, s, m and h`},
		{"duration in days", "[images]\nmax_age = '7d'", 2, "images.max_age", `"7d"`, "must be a duration", `the largest unit is the hour; a day is "24h"`},
		{"no duration", "[images]\nmax_age = 'never'", 2, "images.max_age", `"never"`, "must be a duration", `for example "500ms", "30s" or "1h30m"`},
		{"empty duration", "[images]\nmax_age = ''", 2, "images.max_age", `""`, "must be a duration", `for example "500ms", "30s" or "1h30m"`},
		{"negative duration", "[eviction]\nmax_pod_grace_period = '-1s'", 2, "eviction.max_pod_grace_period", `"-1s"`, "must not be negative", `the minimum is "0s"`},
		{"short window", "[eviction]\nstall_window = '499ms'", 2, "eviction.stall_window", `"499ms"`, "must be at least 500ms", ""},
		{"long window", "[eviction]\nstall_window = '11s'", 2, "eviction.stall_window", `"11s"`, "must be at most 10s", ""},
		{"short interval", "[eviction]\ninterval = '10ms'", 2, "eviction.interval", `"10ms"`, "must be at least 100ms", ""},
		{"long timeout", "[runtime]\ntimeout = '2m'", 2, "runtime.timeout", `"2m"`, "must be at most 1m", ""},
		{"endless duration", "[images]\nmax_age = '2000000h'", 2, "images.max_age", `"2000000h"`, "must be at most 876000h", ""},

		// Quantities and thresholds.
		{"unknown signal", "[eviction.hard]\n'memory.avialable' = '1Gi'", 2, `eviction.hard."memory.avialable"`, `"1Gi"`, "unknown signal", `did you mean "memory.available"?`},
		{"unknown suffix", "[eviction.hard]\n'memory.available' = '1GB'", 2, `eviction.hard."memory.available"`, `"1GB"`, "must have a known suffix", `leave the "B" out`},
		{"threshold of 0", "[eviction.hard]\n'memory.available' = '0'", 2, `eviction.hard."memory.available"`, `"0"`, "must be above 0", off},
		{"negative threshold", "[eviction.soft]\n'memory.available' = '-1Gi'\n[eviction.soft_grace_period]\n'memory.available' = '1m'", 2, `eviction.soft."memory.available"`, `"-1Gi"`, "must not be negative", ""},
		{"above 100 %", "[eviction.hard]\n'nodefs.available' = '101%'", 2, `eviction.hard."nodefs.available"`, `"101%"`, "must not be above 100%", ""},
		{"stall in bytes", "[eviction.hard]\n'memory.stall' = '1Gi'", 2, `eviction.hard."memory.stall"`, `"1Gi"`, "must be a percentage", `"80%" acts when more than 20% of the time is stalled`},
		{"empty threshold", "[eviction.hard]\n'nodefs.available' = ''", 2, `eviction.hard."nodefs.available"`, `""`, "must be a quantity", `as "100Mi" or "10%"`},
		{"soft without grace", "[eviction]\n[eviction.soft]\n'memory.available' = '1Gi'", 3, `eviction.soft_grace_period."memory.available"`, "", "must be set for a soft threshold", `as "1m30s"`},
		{"grace without soft", "[eviction.soft_grace_period]\n'memory.available' = '1m'", 2, `eviction.soft_grace_period."memory.available"`, `"1m"`, "must belong to a soft threshold", `set a threshold in [eviction.soft]: "memory.available" = …`},
		{"grace without a unit", "[eviction.soft]\n'memory.available' = '1Gi'\n[eviction.soft_grace_period]\n'memory.available' = '90'", 4, `eviction.soft_grace_period."memory.available"`, `"90"`, "must have a unit", `"90s" means seconds; the units are ms, s, m and h`},
		{"minimum reclaim without a threshold", "[eviction.minimum_reclaim]\n'swap.available' = '1Gi'", 2, `eviction.minimum_reclaim."swap.available"`, `"1Gi"`, "must belong to a threshold", `set a threshold in [eviction.hard]: "swap.available" = …`},
		{"minimum reclaim of what is derived", "[eviction.minimum_reclaim]\n'containerfs.available' = '1Gi'", 2, `eviction.minimum_reclaim."containerfs.available"`, `"1Gi"`, "must belong to a threshold", `set a threshold in [eviction.hard]: "containerfs.available" = …; otherwise the minimum reclaim of its filesystem applies`},
		{"minimum reclaim beyond reach", "[eviction.minimum_reclaim]\n'nodefs.available' = '91%'", 2, `eviction.minimum_reclaim."nodefs.available"`, `"91%"`, "must leave the threshold attainable", "with the hard threshold of 10% it asks for more than 100%"},
		{"stall floor", "[eviction]\nstall_floor = 'low'", 2, "eviction.stall_floor", `"low"`, "must begin with a number", `as "100Mi" or "10%"`},

		// Rank.
		{"rank key", "[rank]\nmemory = ['over_requests']", 2, "rank.memory[1]", `"over_requests"`, rankKeys, `did you mean "over_request"?`},
		{"rank key of a disk", "[rank]\ndisk = ['size']", 2, "rank.disk[1]", `"size"`, "must be one of over_request, priority, usage, qos", ""},
		{"rank key of PIDs", "[rank]\npid = ['size']", 2, "rank.pid[1]", `"size"`, "must be one of culprit, over_request, priority, usage, qos", ""},
		{"blank in a quantity", "[images]\nhigh = '85 %'", 2, "images.high", `"85 %"`, "must not contain blanks", `write it as "85%"`},
		{"rank key twice", "[rank]\ndisk = ['usage', 'priority', 'usage']", 2, "rank.disk[3]", `"usage"`, "must be listed only once", "only the first position counts; remove this one"},
		{"no rank key", "[rank]\npid = []", 2, "rank.pid", "[]", "must contain at least one key", "remove the line to use the default order"},
		{"culprit of a disk", "[rank]\ndisk = ['culprit']", 2, "rank.disk[1]", `"culprit"`, "must not be used outside rank.memory and rank.pid", "a disk fills too slowly for it"},
		{"culprit not first", "[rank]\nmemory = ['priority', 'culprit']", 2, "rank.memory[2]", `"culprit"`, "must be the first key", "it is stopped before any other pod, or not at all"},
		{"growth of a disk", "[rank]\ndisk = ['growth']", 2, "rank.disk[1]", `"growth"`, "must not be used outside rank.memory", "criguard measures growth only for memory"},

		// Rules.
		{"priority rule for nothing", "[[priority]]\nvalue = 3", 1, "priority[1]", "", "must select pods", `set namespace, name or labels; name = "*" matches every pod`},
		{"protect rule for nothing", "[[protect]]\n[[protect]]\nname = 'a'", 1, "protect[1]", "", "must select pods", `set namespace, name or labels; name = "*" matches every pod`},
		{"priority rule without a value", "[[priority]]\nname = 'a'", 1, "priority[1].value", "", "must be set", "for example value = -10; pods with a lower priority are stopped earlier"},
		{"priority out of range", "[[priority]]\nname = 'a'\nvalue = 3_000_000_000", 3, "priority[1].value", "3000000000", "must be between -2147483648 and 2147483647", "the range of priorities in Kubernetes"},
		{"a pod in place of a name", "[[protect]]\nname = 'default/web-*'", 2, "protect[1].name", `"default/web-*"`, "must not contain a slash", "the namespace and the name of a pod are separate keys"},
		{"a blank after a namespace", "[[protect]]\nname = 'a'\nnamespace = 'monitoring '", 3, "protect[1].namespace", `"monitoring "`, "must not begin or end with a blank", ""},
		{"labels of a command", "[[protect]]\nname = 'a'\n[[protect]]\nlabels = 'app=web'", 4, "protect[2].labels", `"app=web"`, "must be a table", "write [protect.labels] on a line of its own"},
		{"a rule as a string", "protect = ['web']", 1, "protect[1]", `"web"`, "must be a table", "write [[protect]] on a line of its own"},
		{"no glob", "[[protect]]\nnamespace = 'a['", 2, "protect[1].namespace", `"a["`, "must be a name or a glob", glob},
		{"no glob of a label", "[[protect]]\nlabels = {app = 'a[', 'a.b/c' = 'd'}", 2, "protect[1].labels.app", `"a["`, "must be a name or a glob", glob},
		{"limit rule without a limit", "[[limit]]\nname = 'a'", 1, "limit[1].ephemeral_storage", "", "must be set", `for example ephemeral_storage = "2Gi"`},
		{"limit as a share", "[[limit]]\nname = 'a'\nephemeral_storage = '10%'", 3, "limit[1].ephemeral_storage", `"10%"`, "must be an amount above 0", `for example "2Gi"`},
		{"limit of 0", "[[limit]]\nname = 'a'\nephemeral_storage = '0'", 3, "limit[1].ephemeral_storage", `"0"`, "must be an amount above 0", `for example "2Gi"`},
		{"limit that is none", "[[limit]]\nname = 'a'\nephemeral_storage = 'x'", 3, "limit[1].ephemeral_storage", `"x"`, "must begin with a number", `as "100Mi" or "10%"`},
		{"trusted pod", "[annotations]\ntrusted_namespaces = ['a/b']", 2, "annotations.trusted_namespaces[1]", `"a/b"`, "must not contain a slash", "the namespace and the name of a pod are separate keys"},
		{"trusted namespace", "[annotations]\ntrusted_namespaces = ['a', '']", 2, "annotations.trusted_namespaces[2]", `""`, "must be a name or a glob", glob},

		// Budget and back-off.
		{"burst of 0", "[budget]\nhard = {burst = 0}", 2, "budget.hard.burst", "0", "must be at least 1", `to stop no pods, set mode = "observe"`},
		{"every 0", "[budget.soft]\nevery = '0s'", 2, "budget.soft.every", `"0s"`, "must be at least 1ms", ""},
		{"every of a century", "[budget]\nhard = {every = '876000h'}", 2, "budget.hard.every", `"876000h"`, "must be at most 720h", ""},
		{"cap below 0", "[budget]\nper_hour = -1", 2, "budget.per_hour", "-1", "must be at least 0", "0 = no cap"},
		{"breaker below 0", "[budget]\nbreaker = -1", 2, "budget.breaker", "-1", "must be at least 0", "0 disables the breaker"},
		{"first wait above the longest", "[backoff]\nfirst = '6m'", 2, "backoff.first", `"6m"`, "must not be above backoff.max", "raise backoff.max, which is 5m"},
		{"forgotten too early", "[backoff]\nreset = '4m'", 2, "backoff.reset", `"4m"`, "must not be below backoff.max", "criguard would forget a workload before its wait of 5m ends"},

		// Images, history.
		{"low above high", "[images]\nhigh = '70%'\nlow = '75%'", 3, "images.low", `"75%"`, "must be below images.high", "pruning starts above high, which is 70%, and ends at low"},
		{"low as high", "[images]\nlow = '85.0%'", 2, "images.low", `"85.0%"`, "must be below images.high", "pruning starts above high, which is 85%, and ends at low"},
		{"watermark in bytes", "[images]\nhigh = '85'", 2, "images.high", `"85"`, "must be a percentage", `for example "85%"`},
		{"watermark above 100 %", "[images]\nhigh = '120%'", 2, "images.high", `"120%"`, "must not be above 100%", ""},
		{"keep nothing", "[images]\nkeep = ['']", 2, "images.keep[1]", `""`, "must be an image name pattern", pattern},
		{"keep by letters", "[images]\nkeep = ['img-[ab]']", 2, "images.keep[1]", `"img-[ab]"`, "must be an image name pattern", pattern},
		{"air-gap directory", "[images]\nairgap_dirs = ['/a', 'b']", 2, "images.airgap_dirs[2]", `"b"`, "must be an absolute path", `for example "/var/lib/criguard"`},
		{"no pass kept", "[history]\npasses = 0", 2, "history.passes", "0", "must be at least 1", "the newest passes are kept"},
		{"many passes kept", "[history]\npasses = 10_001", 2, "history.passes", "10001", "must be at most 10000", "the newest passes are kept"},
		{"history nowhere", "[history]\ndir = 'state'", 2, "history.dir", `"state"`, "must be an absolute path", `for example "/var/lib/criguard"`},

		// Paths and endpoints.
		{"endpoint that is no socket", "[runtime]\nendpoint = 'tcp://127.0.0.1:2376'", 2, "runtime.endpoint", `"tcp://127.0.0.1:2376"`, "must be a unix socket", endpoint},
		{"endpoint without a root", "[runtime]\nendpoint = 'unix://run/containerd.sock'", 2, "runtime.endpoint", `"unix://run/containerd.sock"`, "must have an absolute path", endpoint},
		{"endpoint that no socket can have", "[runtime]\nendpoint = '/" + strings.Repeat("x", 107) + "'", 2, "runtime.endpoint", `"/` + strings.Repeat("x", 107) + `"`, "must have a path of at most 107 bytes", "the kernel allows no longer socket path; use a symbolic link"},
		{"relative directory", "[node]\nroot_dir = 'kubelet'", 2, "node.root_dir", `"kubelet"`, "must be an absolute path", found},
		{"directory with a zero byte", "[node]\nproc = \"/a\\u0000\"", 2, "node.proc", `"/a\x00"`, "must be an absolute path", found},
		{"cgroup that is the root", "[node]\npods_cgroup = '/'", 2, "node.pods_cgroup", `"/"`, "must be a path below the cgroup root", cgroup},
		{"cgroup that leaves the root", "[node]\npods_cgroup = '/kubepods/../..'", 2, "node.pods_cgroup", `"/kubepods/../.."`, "must be a path below the cgroup root", cgroup},
		{"relative cgroup", "[node]\npods_cgroup = 'kubepods'", 2, "node.pods_cgroup", `"kubepods"`, "must be a path below the cgroup root", cgroup},

		// Metrics.
		{"metrics for all", "[metrics]\nlisten = ':9480'", 2, "metrics.listen", `":9480"`, "must be a loopback address", loopback},
		{"metrics for the net", "[metrics]\nlisten = '10.0.0.1:9480'", 2, "metrics.listen", `"10.0.0.1:9480"`, "must be a loopback address", loopback},
		{"metrics for a name", "[metrics]\nlisten = 'node-1:9480'", 2, "metrics.listen", `"node-1:9480"`, "must be a loopback address", loopback},
		{"metrics without a port", "[metrics]\nlisten = '127.0.0.1'", 2, "metrics.listen", `"127.0.0.1"`, "must be an address and a port", address},
		{"metrics at port 0", "[metrics]\nlisten = '127.0.0.1:0'", 2, "metrics.listen", `"127.0.0.1:0"`, "must be an address and a port", address},
		{"metrics at no port", "[metrics]\nlisten = '127.0.0.1:70000'", 2, "metrics.listen", `"127.0.0.1:70000"`, "must be an address and a port", address},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := mistakesIn(t, test.text)
			for _, e := range got {
				if e.Key == test.key {
					want := schema.Error{File: "test.toml", Line: test.line, Key: test.key, Value: test.value, Rule: test.rule, Hint: test.hint}
					if *e != want {
						t.Errorf("\ngot  %#v\nwant %#v", *e, want)
					}
					if len(got) > 1 {
						t.Errorf("more than one mistake: %v", got)
					}
					return
				}
			}
			t.Errorf("%q is not among %v", test.key, got)
		})
	}
}

// A single run reports all mistakes, in the order of the file.
func TestConfigMistakesAllAtOnce(t *testing.T) {
	text, err := os.ReadFile("testdata/config/mistakes.toml")
	if err != nil {
		t.Fatal(err)
	}
	marked := map[int]bool{}
	for i, line := range strings.Split(string(text), "\n") {
		marked[i+1] = strings.HasSuffix(line, "# wrong")
	}
	last, found := 0, map[int]bool{}
	for _, e := range mistakesIn(t, string(text)) {
		if e.Line < last {
			t.Errorf("out of order: %v", e)
		}
		last = e.Line
		if !marked[e.Line] {
			t.Errorf("not wrong: %v", e)
		}
		found[e.Line] = true
	}
	for line, wrong := range marked {
		if wrong && !found[line] {
			t.Errorf("line %d is wrong, but not reported", line)
		}
	}
	if len(found) < 25 {
		t.Errorf("only %d lines were wrong", len(found))
	}
}

func TestConfigMistakesAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "key%d = 1\n", i)
	}
	got := mistakesIn(t, b.String())
	if len(got) != maxMistakes+1 {
		t.Fatalf("%d mistakes are reported", len(got))
	}
	want := schema.Error{File: "test.toml", Rule: "has 4900 more mistakes", Hint: "fix these first"}
	if last := got[maxMistakes]; *last != want {
		t.Errorf("the last is %v", last)
	}
}

// A mistake does not cause follow-up mistakes.
func TestConfigMistakesDoNotSpread(t *testing.T) {
	for name, text := range map[string]string{
		"low of a high that is none":       "[images]\nhigh = '8o%'\nlow = '84%'",
		"soft of another type, with grace": "[eviction.soft]\n'memory.available' = 1\n[eviction.soft_grace_period]\n'memory.available' = '1m'",
		"grace of another type":            "[eviction.soft]\n'memory.available' = '1Gi'\n[eviction.soft_grace_period]\n'memory.available' = 60",
		"value of another type":            "[[priority]]\nname = 'a'\nvalue = 'high'",
		"first wait that is none":          "[backoff]\nfirst = '1'\nmax = '1ms'",
	} {
		t.Run(name, func(t *testing.T) {
			if got := mistakesIn(t, text); len(got) != 1 {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestConfigErrorText(t *testing.T) {
	for _, test := range []struct {
		err  schema.Error
		want string
	}{
		{schema.Error{File: "f", Line: 3, Key: "a.b", Value: `"5"`, Rule: "must have a unit", Hint: "as 5s"}, `f:3: a.b = "5": must have a unit (hint: as 5s)`},
		{schema.Error{File: "f", Key: "a", Rule: "unknown key"}, "f: a: unknown key"},
		{schema.Error{File: "f", Rule: "is too large"}, "f: is too large"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestLoadConfigUnreadable(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		name, path, rule string
		is               error
	}{
		{"missing", filepath.Join(dir, "none.toml"), "cannot be read: no such file or directory", fs.ErrNotExist},
		{"directory", dir, "cannot be read: is a directory", nil},
		{"below a file", filepath.Join(os.Args[0], "x"), "cannot be read: not a directory", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Load(test.path)
			got := mistakesOf(t, err)
			if len(got) != 1 || got[0].File != test.path || got[0].Rule != test.rule || got[0].Hint == "" {
				t.Errorf("got %#v", got)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v is not %v", err, test.is)
			}
		})
	}
	t.Run("broken off", func(t *testing.T) {
		_, err := Parse("f", iotest.ErrReader(errors.New("disk gone")))
		if got := mistakesOf(t, err); got[0].Rule != "cannot be read: disk gone" {
			t.Errorf("got %v", err)
		}
	})
}

// An unknown signal is taken for the nearest one.
func TestNearestSignal(t *testing.T) {
	for in, want := range map[string]string{
		"mem.available": "memory.available", "nodefs.inodefree": "nodefs.inodesFree", "pids.available": "pid.available",
		"memory.stal": "memory.stall", "memory.avail": "memory.available", "memory.free": "", "invalid.foo": "", "": "", "x": "",
	} {
		hint := "signals are memory.available, "
		if want != "" {
			hint = fmt.Sprintf("did you mean %q?", want)
		}
		_, err := Parse("test.toml", strings.NewReader(fmt.Sprintf("eviction.hard.%q = '1Gi'", in)))
		if err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %v, want %q", in, err, hint)
		}
	}
}
