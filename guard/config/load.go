package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxConfig limits the size of a configuration file, in bytes.
const maxConfig = 256 << 10

// Load reads the configuration file and then the drop-ins in the directories; later directories
// win. Without a file and directories it reads [DefaultPaths], and uses the defaults if nothing is
// there, which Notes reports. The error joins a *Error for each mistake in any file.
func Load(path string, dropIns ...string) (Config, error) {
	if path == "" && len(dropIns) == 0 {
		return DefaultPaths().load()
	}
	for _, dir := range dropIns {
		if _, err := os.ReadDir(dir); err != nil {
			return Config{}, Unreadable(dir, err) // a directory that the user named must be readable
		}
	}
	p := Paths{File: path, DropIns: dropIns}
	if path == "" {
		p.File, p.Optional = DefaultPath, true
	}
	return p.load()
}

// Parse reads a configuration; name stands for it in errors. Missing keys get their defaults, and
// so do the signals that [eviction.hard] does not name. The error joins a *Error for each mistake.
func Parse(name string, r io.Reader) (Config, error) {
	b, err := readText(name, r)
	return parseConfigs([]configText{{name, b, err}})
}

// configText is a configuration file's text, or the mistake that prevents reading it.
type configText struct {
	name string
	text []byte
	err  *Error
}

// readText reads a text of at most 256 KiB.
func readText(name string, r io.Reader) ([]byte, *Error) {
	b, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	switch {
	case err != nil:
		return nil, Unreadable(name, err)
	case len(b) > maxConfig:
		return nil, &Error{File: name, Rule: fmt.Sprintf("must be at most %d KiB", maxConfig>>10), Hint: "this is probably not a configuration file"}
	}
	return b, nil
}

// ReadFile reads a file of at most 256 KiB.
func ReadFile(path string) ([]byte, *Error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, Unreadable(path, err)
	}
	defer func() { _ = f.Close() }()
	return readText(path, f)
}

// parseConfigs merges the files over the defaults, in order.
func parseConfigs(files []configText) (Config, error) {
	c, broken := newChecker(), false
	for _, f := range files {
		broken = !c.load(f) || broken
	}
	if broken {
		return Config{}, c.err() // without this file's values, further checks would mislead
	}
	cfg, err := c.config()
	if err != nil {
		return Config{}, err
	}
	cfg.Files, cfg.origins = c.files, c.origins
	return cfg, nil
}

// load merges a file over the values. It returns false if the file is unreadable, too large or not
// TOML, in which case it cannot report further mistakes in it.
func (c checker) load(f configText) bool {
	c.begin(f.name)
	text := strings.TrimPrefix(string(f.text), "\ufeff")
	lines, beyond := findKeyLines(text)
	var tree map[string]any
	mistake := f.err
	switch {
	case mistake != nil:
	case beyond.line > 0:
		mistake = &Error{File: f.name, Line: beyond.line, Rule: beyond.rule, Hint: "no criguard key is nested this deeply"}
	default:
		if _, err := toml.Decode(text, &tree); err != nil {
			mistake = syntaxError(f.name, lines, err)
		}
	}
	if mistake != nil {
		c.list = append(c.list, mistake)
		return false
	}
	c.adopt(lines)
	keys, _ := schema(&Config{})
	c.fill(keys, tree, "", "")
	return true
}

func syntaxError(file string, lines keyLines, err error) *Error {
	e := &Error{File: file, Rule: shorten(err.Error()), Hint: `strings need quotes, for example interval = "10s"; tables need brackets, for example [images]`}
	var parse toml.ParseError
	if errors.As(err, &parse) {
		e.Line, e.Rule = parse.Position.Line, strings.TrimSuffix(strings.TrimSpace(shorten(parse.Message)), ".")
		if strings.HasSuffix(e.Rule, `to end table name, but got '\n' instead`) {
			e.Line-- // for this error the decoder returns the next line
		}
		e.Key = lines.at(e.Line)
	}
	if strings.Contains(e.Rule, "already") {
		e.Hint = "set each key and define each [table] only once"
	}
	return e
}

// Unreadable returns the mistake of a file or directory that cannot be read.
func Unreadable(file string, err error) *Error {
	cause := err
	var path *fs.PathError
	if errors.As(err, &path) {
		cause = path.Err // the message already contains the path
	}
	return &Error{File: file, Rule: "cannot be read: " + cause.Error(), Hint: "name a file that the service can read", cause: err}
}
