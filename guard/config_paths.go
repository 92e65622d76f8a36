package guard

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ConfigPaths is where a configuration is read from. Its parts are put over each
// other in this order: the vendor's drop-ins, the file, the other drop-ins. Drop-ins
// are read in the order of their names, whatever their directories. Of those of the
// same name only the one in the last directory counts, so that an empty one, or a
// link to /dev/null, masks the others.
type ConfigPaths struct {
	File     string
	Optional bool     // no file is no mistake
	Vendor   string   // directory of the vendor's drop-ins; "" = none
	DropIns  []string // directories; the last wins
}

// dropInSuffix is what the names of drop-ins end with; others are passed over, as
// what editors and package managers leave behind.
const dropInSuffix = ".toml"

// DefaultConfigPaths is where the service reads its configuration. What is in /run
// counts until the next boot, and works where /etc is read-only.
func DefaultConfigPaths() ConfigPaths {
	return ConfigPaths{
		File: DefaultConfigPath, Optional: true, Vendor: "/usr/lib/criguard/config.d",
		DropIns: []string{"/etc/criguard/config.d", "/run/criguard/config.d"},
	}
}

// Source names the files that a configuration was read from.
func (c Config) Source() string {
	if len(c.Files) == 0 {
		return "defaults"
	}
	return strings.Join(c.Files, ", ")
}

// load reads all of it.
func (p ConfigPaths) load() (Config, error) {
	paths, err := p.find()
	if err != nil {
		return Config{}, err
	}
	var texts []configText
	for _, path := range paths {
		b, err := readConfig(path)
		if path == p.File && p.Optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		texts = append(texts, configText{path, b, err})
	}
	return parseConfigs(texts)
}

// find lists the files in the order in which they are put over each other.
func (p ConfigPaths) find() ([]string, error) {
	byName := map[string]string{}
	for _, dir := range append([]string{p.Vendor}, p.DropIns...) {
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, unreadable(dir, err)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), dropInSuffix) {
				byName[e.Name()] = filepath.Join(dir, e.Name())
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
	return slices.Concat(vendor, []string{p.File}, own), nil
}

// readConfig reads no more of a file than shows that it is too large.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxConfig+1))
}
