package config

import "github.com/criguard/criguard/guard/config/schema"

// Change is a key whose value differs between two configurations.
type Change struct {
	Key      string
	Old, New string // in TOML, shortened; "": not set
	Restart  bool   // takes effect at the next start
}

// ChangedKeys returns the keys of the changes that take effect at the next start, or of the others.
func ChangedKeys(changes []Change, restart bool) (keys []string) {
	for _, c := range changes {
		if c.Restart == restart {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// Diff returns the keys whose values differ from those of an older configuration, in alphabetical
// order. It compares a list of rules as a whole.
func (c Config) Diff(old Config) (names []string) {
	for _, ch := range c.Changes(old) {
		names = append(names, ch.Key)
	}
	return names
}

// Changes returns the same keys as Diff, with their values.
func (c Config) Changes(old Config) (all []Change) {
	before, now := old.changes(), c.changes()
	for _, key := range sortedKeys(before) {
		if _, ok := now[key]; !ok {
			now[key] = Change{Key: key}
		}
	}
	for _, key := range sortedKeys(now) {
		if ch := now[key]; ch.New != before[key].New {
			all = append(all, Change{key, schema.Shorten(before[key].New), schema.Shorten(ch.New), ch.Restart})
		}
	}
	return all
}

// changes returns every key with its value as a change, by path.
func (c Config) changes() map[string]Change {
	all := map[string]Change{}
	keys, _ := allKeys(&c)
	for _, k := range keys {
		if !k.IsTables() {
			if t, ok := k.Value().(map[string]string); ok {
				for name, text := range t {
					all[schema.JoinKey(k.Name, name)] = Change{New: TOMLString(text)}
				}
				continue
			}
		}
		all[k.Name] = Change{New: keyInTOML(k), Restart: k.Restart}
	}
	return all
}
