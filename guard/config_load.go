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

// LoadConfig reads a configuration: the file, and over it the drop-ins of the
// directories, of which a later one wins. Without a file and directories it reads
// what [DefaultConfigPaths] names, and takes the defaults where nothing is there,
// which Notes tells. The error joins a *ConfigError for each mistake in any file.
func LoadConfig(path string, dropIns ...string) (Config, error) {
	if path == "" && len(dropIns) == 0 {
		return DefaultConfigPaths().load()
	}
	for _, dir := range dropIns {
		if _, err := os.ReadDir(dir); err != nil {
			return Config{}, unreadable(dir, err) // it was named
		}
	}
	p := ConfigPaths{File: path, DropIns: dropIns}
	if path == "" {
		p.File, p.Optional = DefaultConfigPath, true
	}
	return p.load()
}

// ParseConfig reads a configuration; name stands for it in errors. Keys that are
// left out have their defaults, and so have the signals that [eviction.hard] does
// not name. The error joins a *ConfigError for each mistake.
func ParseConfig(name string, r io.Reader) (Config, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	return parseConfigs([]configText{{name, b, err}})
}

// configText is a configuration file as read: one byte more than may be, where
// there is more. Or why it cannot be read.
type configText struct {
	name string
	text []byte
	err  error
}

// parseConfigs puts files over each other and over the defaults.
func parseConfigs(files []configText) (Config, error) {
	keys, m, broken := defaultKeys(), &mistakes{}, false
	for _, f := range files {
		broken = !m.read(f, &keys) || broken
	}
	if broken {
		return Config{}, m.err() // what a file would have set is not known
	}
	cfg, err := checkConfig(keys, m)
	if err != nil {
		return Config{}, err
	}
	cfg.Files, cfg.origins = m.files, m.origins
	return cfg, nil
}

// read puts a file over the keys. False says that it is no TOML, or cannot be read:
// nothing more can be said of it then.
func (m *mistakes) read(f configText, keys *configKeys) bool {
	m.begin(f.name)
	if f.err != nil {
		m.list = append(m.list, unreadable(f.name, f.err))
		return false
	}
	if len(f.text) > maxConfig {
		m.list = append(m.list, &ConfigError{
			File: f.name, Rule: fmt.Sprintf("must be at most %d KiB", maxConfig>>10), Hint: "this is no configuration of criguard's",
		})
		return false
	}
	text := strings.TrimPrefix(string(f.text), "\ufeff")
	lines, beyond := findKeyLines(text)
	if beyond.line > 0 {
		m.list = append(m.list, &ConfigError{File: f.name, Line: beyond.line, Rule: beyond.rule, Hint: "no key of criguard's is so deep"})
		return false
	}
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		m.list = append(m.list, syntaxError(f.name, lines, err))
		return false
	}
	m.adopt(lines)
	m.fill(reflect.ValueOf(keys).Elem(), tree, "")
	return true
}

func syntaxError(file string, lines keyLines, err error) *ConfigError {
	e := &ConfigError{File: file, Rule: shorten(err.Error()), Hint: `strings need quotes, as interval = "10s"; tables brackets, as [images]`}
	var parse toml.ParseError
	if errors.As(err, &parse) {
		e.Line, e.Rule = parse.Position.Line, strings.TrimSuffix(strings.TrimSpace(shorten(parse.Message)), ".")
		if strings.HasSuffix(e.Rule, `to end table name, but got '\n' instead`) {
			e.Line-- // here the decoder names the next line
		}
		e.Key = lines.at(e.Line)
	}
	if strings.Contains(e.Rule, "already") {
		e.Hint = "name each key and each [table] once"
	}
	return e
}

func unreadable(file string, err error) *ConfigError {
	cause := err
	var path *fs.PathError
	if errors.As(err, &path) {
		cause = path.Err // the path is told already
	}
	return &ConfigError{File: file, Rule: "cannot be read: " + cause.Error(), Hint: "name a file that the service may read", cause: err}
}
