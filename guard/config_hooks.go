package guard

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Bounds of hooks.
const (
	maxHooks           = 16
	maxHookArguments   = 64
	defaultHookTimeout = durationText("10s") // where none is set
)

func (c checker) hooks(hooks []hookKeys) (all []HookConfig) {
	if len(hooks) > maxHooks {
		c.add("hook", nil, fmt.Sprintf("must be at most %d", maxHooks), "one program can take several kinds of events")
		return nil
	}
	for i, k := range hooks {
		at := fmt.Sprintf("hook[%d]", i+1)
		if k.Timeout == "" {
			k.Timeout = defaultHookTimeout
		}
		all = append(all, HookConfig{
			On: c.events(at+".on", k.On), Command: c.command(at+".command", k.Command),
			Timeout: c.duration(at+".timeout", k.Timeout, 100*time.Millisecond, 5*time.Minute),
		})
	}
	return all
}

func (c checker) events(key string, names []string) (kinds []EventKind) {
	if len(names) == 0 {
		c.add(key, nil, "must be set", `as on = "stop" or on = ["condition", "alarm"]`)
	}
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", key, i+1)
		kind := choice(c, at, name, EventCondition, EventStop, EventAlarm)
		if slices.Contains(kinds, kind) && !c.has(at) {
			c.add(at, name, "must be named once", "")
		}
		kinds = append(kinds, kind)
	}
	return kinds
}

// command is a program and its arguments. Whether it is there is told when it is
// run: it may be mounted or installed later.
func (c checker) command(key string, words []string) []string {
	const hint = `as command = ["/usr/local/bin/on-event", "--verbose"]; for a shell name it: ["/bin/sh", "-c", "…"]`
	switch {
	case len(words) == 0:
		c.add(key, nil, "must be set", hint)
	case !path.IsAbs(words[0]):
		c.add(key+"[1]", words[0], "must be an absolute path", hint)
	case len(words) > maxHookArguments:
		c.add(key, nil, fmt.Sprintf("must have at most %d words", maxHookArguments), hint)
	}
	for i, w := range words {
		if strings.ContainsRune(w, 0) {
			c.add(fmt.Sprintf("%s[%d]", key, i+1), w, "must not contain a NUL", hint)
		}
	}
	return words
}
