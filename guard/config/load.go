package config

import (
	"io"
	"os"

	"github.com/criguard/criguard/guard/config/schema"
)

// Load reads the configuration file and then the drop-ins in the directories; later directories
// win. Without a file and directories it reads [DefaultPaths], and uses the defaults if nothing is
// there, which Notes reports. The error joins a *schema.Error for each mistake in any file.
func Load(path string, dropIns ...string) (Config, error) {
	if path == "" && len(dropIns) == 0 {
		return DefaultPaths().Load()
	}
	for _, dir := range dropIns {
		if _, err := os.ReadDir(dir); err != nil {
			return Config{}, schema.Unreadable(dir, err) // a directory that the user named must be readable
		}
	}
	p := Paths{File: path, DropIns: dropIns}
	if path == "" {
		p.File, p.Optional = DefaultPath, true
	}
	return p.Load()
}

// Parse reads a configuration; name stands for it in errors. Missing keys get their defaults, and
// so do the signals that [eviction.hard] does not name. The error joins a *schema.Error for each mistake.
func Parse(name string, r io.Reader) (Config, error) {
	return parseConfigs([]schema.File{schema.ReadText(name, r)})
}

// parseConfigs merges the files over the defaults, lowest precedence first.
func parseConfigs(files []schema.File) (Config, error) {
	c := newChecker()
	if keys, _ := allKeys(&Config{}); !c.Read(keys, files...) {
		return Config{}, c.Err() // without a file's values, further checks would mislead
	}
	cfg, err := build(c)
	if err != nil {
		return Config{}, err
	}
	cfg.Files, cfg.origins = c.Files, c.Origins
	return cfg, nil
}
