package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestConfigHookMistakes(t *testing.T) {
	const good = "[[hook]]\non = 'stop'\ncommand = ['/bin/true']\n"
	for _, c := range []struct{ name, text, key, rule string }{
		{"no event", "[[hook]]\ncommand = ['/bin/true']", "hook[1].on", "must be set"},
		{"an unknown event", "[[hook]]\non = 'stopped'\ncommand = ['/bin/true']", "hook[1].on[1]", "must be one of condition, stop, alarm"},
		{"an event twice", "[[hook]]\non = ['stop', 'stop']\ncommand = ['/bin/true']", "hook[1].on[2]", "must be listed only once"},
		{"no command", good + "[[hook]]\non = 'stop'", "hook[2].command", "must be set"},
		{"a command line", "[[hook]]\non = 'stop'\ncommand = '/bin/true'", "hook[1].command", "must be a list"},
		{"a command to look for", "[[hook]]\non = 'stop'\ncommand = ['true']", "hook[1].command[1]", "must be an absolute path"},
		{"a NUL", "[[hook]]\non = 'stop'\ncommand = ['/bin/true', \"\\u0000\"]", "hook[1].command[2]", "must not contain a NUL"},
		{"too many words", "[[hook]]\non = 'stop'\ncommand = ['/bin/true'" + strings.Repeat(", 'x'", maxHookArguments) + "]", "hook[1].command", "must have at most 64 elements"},
		{"no time", good + "timeout = '0s'", "hook[1].timeout", "must be at least 100ms"},
		{"too much time", good + "timeout = '1h'", "hook[1].timeout", "must be at most 5m"},
		{"too many hooks", strings.Repeat(good, maxHooks+1), "hook", "must have at most 16 tables"},
		{"a single table", "[hook]\non = 'stop'", "hook", "must be a list"},
		{"a relative textfile", "[metrics]\ntextfile = 'criguard.prom'", "metrics.textfile", "must be an absolute path that ends in .prom"},
		{"a textfile that node_exporter does not read", "[metrics]\ntextfile = '/run/criguard.txt'", "metrics.textfile", "must be an absolute path that ends in .prom"},
	} {
		t.Run(c.name, func(t *testing.T) {
			errs := mistakesIn(t, c.text)
			if e := errs[0]; e.Key != c.key || e.Rule != c.rule || e.Line == 0 {
				t.Errorf("got %v", errs)
			}
		})
	}
}

// A single event may be written without a list, and the timeout has a default.
func TestConfigHook(t *testing.T) {
	cfg := goodConfig(t, "[[hook]]\non = 'alarm'\ncommand = ['/bin/a', 'b']")
	if got, want := fmt.Sprint(cfg.Hooks), "[{[alarm] [/bin/a b] 10s}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	sameConfig(t, cfg)
}
