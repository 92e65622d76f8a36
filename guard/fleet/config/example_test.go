package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/guard/fleet"
)

const example = "../../../fleet.example.toml"

// The example has every key, and the default of each that has one.
func TestExample(t *testing.T) {
	cfg, err := Load(example)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Rates != fleet.DefaultRates() || cfg.Zone != "" || cfg.Node != "" || cfg.TLS.Insecure {
		t.Errorf("not the defaults: %+v", cfg)
	}
	lines := exampleLines(t)
	for _, k := range allKeys(new(fleet.Config)) {
		if _, ok := lines[k.Name]; !ok {
			t.Errorf("%s is missing", k.Name)
		}
		delete(lines, k.Name)
	}
	if len(lines) > 0 {
		t.Errorf("not keys: %v", lines)
	}
}

// Each key of the example, wrong in turn, gives one error that names its file, its line, the key and the rule.
func TestExampleWithMistakes(t *testing.T) {
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	for key, number := range exampleLines(t) {
		for _, wrong := range []string{"[[1]]", `"\u0000"`, "-1", "1979-05-27"} {
			lines := strings.Split(string(text), "\n")
			name, _, _ := strings.Cut(lines[number-1], " = ")
			lines[number-1] = name + " = " + wrong
			path := filepath.Join(t.TempDir(), "fleet.toml")
			if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(path)
			list := schema.Errors(err)
			if len(list) != 1 || !errors.Is(err, schema.ErrInvalid) {
				t.Errorf("%s = %s: %v", key, wrong, err)
				continue
			}
			at := list[0].Key
			if i := strings.IndexByte(at, '['); i >= 0 {
				at = at[:i]
			}
			if at != key || list[0].Line != number || !strings.HasPrefix(list[0].Rule, "must ") || !strings.HasPrefix(err.Error(), fmt.Sprintf("%s:%d: %s", path, number, key)) {
				t.Errorf("%s = %s: %v", key, wrong, err)
			}
		}
	}
}

// exampleLines returns the line of each key.
func exampleLines(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	lines, table := map[string]int{}, ""
	for i, line := range strings.Split(string(text), "\n") {
		if m := regexp.MustCompile(`^\[(\w+)\]$`).FindStringSubmatch(line); m != nil {
			table = m[1] + "."
		} else if m := regexp.MustCompile(`^(\w+) = `).FindStringSubmatch(line); m != nil {
			lines[table+m[1]] = i + 1
		}
	}
	return lines
}
