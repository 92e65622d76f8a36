package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/guard/fleet"
)

// Load reads the configuration of an agent. The error joins a *schema.Error for each mistake.
func Load(path string) (fleet.Config, error) {
	f := schema.ReadFile(path)
	if f.Err != nil {
		return fleet.Config{}, f.Err
	}
	return Parse(path, string(f.Text))
}

// Parse reads a configuration; name stands for it in errors. The error joins a *schema.Error for each mistake.
func Parse(name, text string) (fleet.Config, error) { return parse(name, text, (*checker).require) }

// LoadRates reads the rates of a configuration, which need not say how to connect. Without a path it reads
// [fleet.DefaultPath], and returns the defaults if that does not exist.
func LoadRates(path string) (fleet.Rates, error) {
	if path == "" {
		if _, err := os.Stat(fleet.DefaultPath); errors.Is(err, os.ErrNotExist) {
			return fleet.DefaultRates(), nil
		}
		path = fleet.DefaultPath
	}
	f := schema.ReadFile(path)
	if f.Err != nil {
		return fleet.Rates{}, f.Err
	}
	cfg, err := parse(path, string(f.Text), func(*checker, *fleet.Config) {})
	return cfg.Rates, err
}

func parse(name, text string, require func(*checker, *fleet.Config)) (fleet.Config, error) {
	text = strings.TrimPrefix(text, "\ufeff")
	c := &checker{file: name, lines: findLines(text)}
	if line := tooDeep(text); line > 0 {
		return fleet.Config{}, &schema.Error{File: name, Line: line, Rule: fmt.Sprintf("must not nest more than %d levels", maxDepth), Hint: "no key of a fleet is nested this deeply"}
	}
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		return fleet.Config{}, c.syntax(err)
	}
	cfg := fleet.Config{Rates: fleet.DefaultRates()}
	c.fill(allKeys(&cfg), tree, "")
	c.compare(&cfg)
	require(c, &cfg)
	if err := schema.JoinErrors([]string{name}, c.list); err != nil {
		return fleet.Config{}, err
	}
	return cfg, nil
}

// maxMistakes limits how many mistakes are listed.
const maxMistakes = 100

// checker collects the mistakes of a file.
type checker struct {
	file  string
	lines map[string]int // by key
	list  []*schema.Error
	keys  map[string]bool // that have a mistake
}

// add records a mistake, unless its key has one. A nil value means that the key has no value.
func (c *checker) add(at string, value any, rule, hint string) {
	if c.has(at) || len(c.list) >= maxMistakes {
		return
	}
	if c.keys == nil {
		c.keys = map[string]bool{}
	}
	c.keys[at] = true
	line, key := 0, at
	for line == 0 && key != "" {
		line, key = c.lines[key], key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	c.list = append(c.list, schema.NewError(schema.Origin{File: c.file, Line: line}, at, value, rule, hint))
}

// has reports whether one of the keys has a mistake.
func (c *checker) has(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return c.keys[key] })
}

// fill assigns the values of a table to the keys.
func (c *checker) fill(keys []key, table map[string]any, path string) {
	for _, word := range slices.Sorted(maps.Keys(table)) {
		at := schema.JoinKey(path, word)
		if i := slices.IndexFunc(keys, func(k key) bool { return k.name == at }); i >= 0 {
			keys[i].set(c, at, table[word])
			continue
		}
		if path == "" && slices.ContainsFunc(keys, func(k key) bool { return strings.HasPrefix(k.name, at+".") }) {
			if sub, ok := table[word].(map[string]any); ok {
				c.fill(keys, sub, at)
			} else {
				c.add(at, table[word], "must be a table", fmt.Sprintf("write [%s] on a line of its own", at))
			}
			continue
		}
		c.add(at, nil, "unknown key", suggest(keys, path, word))
	}
}

func (c *checker) syntax(err error) error {
	e := &schema.Error{File: c.file, Rule: err.Error(), Hint: `strings need quotes, for example zone = "ring-1"; tables need brackets, for example [rates]`}
	var at toml.ParseError
	if errors.As(err, &at) {
		e.Line, e.Rule = at.Position.Line, strings.TrimSuffix(strings.TrimSpace(at.Message), ".")
	}
	return e
}

// findLines returns the lines of the tables and keys of a text.
func findLines(text string) map[string]int {
	// Patterns of the package would take memory in every process of the program.
	header := regexp.MustCompile(`^\s*\[\s*([\w.-]+)\s*\]`)
	keyName := regexp.MustCompile(`^\s*([\w.-]+)\s*=`)
	lines, table, number := map[string]int{}, "", 0
	for line := range strings.Lines(text) {
		number++
		if m := header.FindStringSubmatch(line); m != nil {
			table = m[1] + "."
			lines[m[1]] = number
		} else if m := keyName.FindStringSubmatch(line); m != nil {
			lines[table+m[1]] = number
		}
	}
	return lines
}

// maxDepth limits the nesting of a text, because the time to parse TOML grows with the third power of its depth.
const maxDepth = 16

// tooDeep returns the line on which a text exceeds maxDepth, or 0.
func tooDeep(text string) int {
	quoted := regexp.MustCompile(`"(\\.|[^"\\\n])*"|'[^'\n]*'|#.*`)
	depth, number := 0, 0
	for line := range strings.Lines(quoted.ReplaceAllString(text, "")) {
		number++
		if strings.Count(line, ".") > maxDepth {
			return number
		}
		for _, b := range line {
			switch b {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(depth-1, 0)
			}
			if depth > maxDepth {
				return number
			}
		}
	}
	return 0
}
