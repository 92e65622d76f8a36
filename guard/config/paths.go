package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/criguard/criguard/guard/config/schema"
)

// Paths names the sources of a configuration. Precedence, lowest first: the vendor's drop-ins, the
// file, the other drop-ins. Drop-ins are read in the order of their file names, regardless of their
// directories. Among drop-ins of the same name only the one in the last directory counts, so a link
// to /dev/null or a file with only a comment masks the others.
type Paths struct {
	File     string
	Optional bool     // the file may be missing
	Vendor   string   // directory of the vendor's drop-ins; "": none
	DropIns  []string // directories; the last wins
	FileLast bool     // the file counts more than every drop-in
}

// isDropIn reports whether a directory entry is a drop-in by its name. Other files are ignored, such as those
// that package managers leave behind, and the hidden ones of editors (.#50-site.toml) and deployment tools.
func isDropIn(name string) bool {
	return strings.HasSuffix(name, ".toml") && !strings.HasPrefix(name, ".")
}

// isMisnamed reports whether a directory entry was probably meant to be a drop-in: systemd's end in .conf.
func isMisnamed(name string) bool {
	ext := filepath.Ext(name)
	return !isDropIn(name) && !strings.HasPrefix(name, ".") && (ext == ".conf" || strings.EqualFold(ext, ".toml"))
}

// DefaultPaths returns the service's configuration paths. Files in /run last until the next boot,
// and also work if /etc is read-only.
func DefaultPaths() Paths {
	return Paths{
		File: DefaultPath, Optional: true, Vendor: "/usr/lib/criguard/config.d",
		DropIns: []string{"/etc/criguard/config.d", "/run/criguard/config.d"},
	}
}

// Source returns the files that a configuration was read from.
func (c Config) Source() string {
	if len(c.Files) == 0 {
		return "defaults"
	}
	return strings.Join(c.Files, ", ")
}

// Replaces returns an error if the configuration in force was read from the service's own file, and this one was not,
// because the file is missing: with the defaults in its place, a reload would drop its rules and may end observe mode.
// A missing drop-in was removed.
func (c Config) Replaces(inForce *Config) error {
	if slices.Contains(inForce.Files, DefaultPath) && !slices.Contains(c.Files, DefaultPath) {
		return &schema.Error{
			File: DefaultPath, Rule: "is missing, and the configuration in force was read from it",
			Hint: "put it back, because a start without it uses the defaults; to mean these, write a file with only a comment",
		}
	}
	return nil
}

// Load reads and merges all files.
func (p Paths) Load() (Config, error) {
	paths, notes, err := p.find()
	if err != nil {
		return Config{}, err
	}
	var files []schema.File
	for _, path := range paths {
		f := schema.ReadFile(path)
		if path == p.File && p.Optional && f.Err != nil && isMissing(path) {
			continue
		}
		if info, err := os.Stat(path); f.Err == nil && err == nil && info.Mode().IsRegular() { // not /dev/null
			if len(f.Text) == 0 {
				f.Err = &schema.Error{File: path, Rule: "must not be empty", Hint: "a full disk or a power cut leaves such a file; to mean the defaults, or to mask a drop-in, write a comment"}
			}
			if info.Mode().Perm()&0o002 != 0 {
				notes = append(notes, path+" can be changed by every user, and the service runs as root")
			}
		}
		files = append(files, f)
	}
	cfg, err := parseConfigs(files)
	cfg.notes = notes
	return cfg, err
}

// isMissing reports whether nothing has this path. A link to what is not there, such as a disk that is not mounted
// yet, is not missing, nor is what would be below it: without the configuration behind it, the defaults would stop pods.
func isMissing(path string) bool {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			_, err = os.Stat(dir)
			return err == nil
		}
	}
}

// find lists the files, lowest precedence first, and notes those that are not read by mistake.
func (p Paths) find() (paths, notes []string, err error) {
	byName := map[string]string{}
	for _, dir := range append([]string{p.Vendor}, p.DropIns...) {
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !isMissing(dir) {
			return nil, nil, schema.Unreadable(dir, err)
		}
		for _, e := range entries {
			if isDropIn(e.Name()) {
				byName[e.Name()] = filepath.Join(dir, e.Name())
			} else if isMisnamed(e.Name()) {
				notes = append(notes, filepath.Join(dir, e.Name())+" is not read: the name of a drop-in ends in .toml")
			}
		}
	}
	var vendor, own []string
	for _, name := range sortedKeys(byName) {
		if path := byName[name]; p.Vendor != "" && filepath.Dir(path) == filepath.Clean(p.Vendor) {
			vendor = append(vendor, path)
		} else {
			own = append(own, path)
		}
	}
	if p.FileLast {
		return slices.Concat(vendor, own, []string{p.File}), notes, nil
	}
	return slices.Concat(vendor, []string{p.File}, own), notes, nil
}
