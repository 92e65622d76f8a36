package guard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 256 << 10

// LoadConfig reads a configuration file. Without a path it reads the one at
// DefaultConfigPath, and takes the defaults where there is none, which Notes
// tells. The error joins a *ConfigError for each mistake.
func LoadConfig(path string) (Config, error) {
	if path == "" {
		return loadIfThere(DefaultConfigPath)
	}
	return loadConfig(path)
}

func loadIfThere(path string) (Config, error) {
	cfg, err := loadConfig(path)
	if errors.Is(err, fs.ErrNotExist) {
		return DefaultConfig(), nil
	}
	return cfg, err
}

func loadConfig(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, unreadable(path, err)
	}
	defer func() { _ = f.Close() }()
	return ParseConfig(path, f)
}

// ParseConfig reads a configuration; name stands for it in errors. Keys that are
// left out have their defaults, and so have the signals that [eviction.hard] does
// not name. The error joins a *ConfigError for each mistake.
func ParseConfig(name string, r io.Reader) (Config, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err != nil {
		return Config{}, unreadable(name, err)
	}
	m := &mistakes{file: name}
	if len(b) > maxConfig {
		m.add("", nil, fmt.Sprintf("must be at most %d KiB", maxConfig>>10), "this is no configuration of criguard's")
		return Config{}, m.err()
	}
	text := strings.TrimPrefix(string(b), "\ufeff")
	keys, err := decodeConfig(text, m)
	if err != nil {
		return Config{}, err
	}
	cfg, err := checkConfig(keys, m)
	if err != nil {
		return Config{}, err
	}
	cfg.File = name
	return cfg, nil
}

// decodeConfig puts a text over the defaults. The error is that it is no TOML:
// nothing more can be said of it then.
func decodeConfig(text string, m *mistakes) (configKeys, error) {
	keys := defaultKeys()
	lines, beyond := findKeyLines(text)
	if m.lines = lines; beyond.line > 0 {
		return keys, &ConfigError{File: m.file, Line: beyond.line, Rule: beyond.rule, Hint: "no key of criguard's is so deep"}
	}
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		return keys, syntaxError(m, err)
	}
	m.fill(reflect.ValueOf(&keys).Elem(), tree, "")
	return keys, nil
}

func syntaxError(m *mistakes, err error) error {
	e := &ConfigError{File: m.file, Rule: shorten(err.Error()), Hint: `strings need quotes, as interval = "10s"; tables brackets, as [images]`}
	var parse toml.ParseError
	if errors.As(err, &parse) {
		e.Line, e.Rule = parse.Position.Line, strings.TrimSuffix(strings.TrimSpace(shorten(parse.Message)), ".")
		if strings.HasSuffix(e.Rule, `to end table name, but got '\n' instead`) {
			e.Line-- // here the decoder names the next line
		}
		e.Key = m.lines.at(e.Line)
	}
	if strings.Contains(e.Rule, "already") {
		e.Hint = "name each key and each [table] once"
	}
	return e
}

func unreadable(file string, err error) error {
	cause := err
	var path *fs.PathError
	if errors.As(err, &path) {
		cause = path.Err // the path is told already
	}
	return &ConfigError{File: file, Rule: "cannot be read: " + cause.Error(), Hint: "name a file that the service may read", cause: err}
}
