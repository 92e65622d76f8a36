package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// maintainer signs the Debian changelog; nfpm.yaml uses the same name.
const maintainer = "The criguard authors <criguard@users.noreply.github.com>"

// fillStage generates the package files that are not in the tree in their final form.
func fillStage(ctx context.Context, dir, version string, o options) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "man"), 0o755); err != nil {
		return err
	}
	example, err := os.ReadFile("config.example.toml")
	if err != nil {
		return err
	}
	config, err := observing(example)
	if err != nil {
		return err
	}
	changes, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "config.toml"), config, 0o644),
		writeGzip(filepath.Join(dir, "changelog.gz"), changes),
		writeGzip(filepath.Join(dir, "changelog.Debian.gz"), debianChangelog(version, time.Unix(o.epoch, 0))),
	)
	if err != nil {
		return err
	}
	if err := manPages(filepath.Join(dir, "man")); err != nil {
		return err
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out, err := exec.CommandContext(ctx, o.native, "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("write completions of %s: %w", shell, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "completion."+shell), out, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// observing returns the example configuration with observe mode on: a newly installed package
// watches, decides and logs, but stops nothing.
func observing(example []byte) ([]byte, error) {
	from, to := []byte("\nmode = \"enforce\"\n"), []byte("\nmode = \"observe\"\n")
	if n := bytes.Count(example, from); n != 1 {
		return nil, fmt.Errorf("switch observe mode on: %d lines say %q, want one", n, bytes.TrimSpace(from))
	}
	return bytes.Replace(example, from, to, 1), nil
}

// manPages compresses every man page in the tree, such as criguard.1 and criguard.toml.5.
func manPages(dir string) error {
	pages, err := filepath.Glob("systemd/*.[1-8]")
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		if err := writeGzip(filepath.Join(dir, filepath.Base(page)+".gz"), text); err != nil {
			return err
		}
	}
	return nil
}

// debianChangelog is the single entry that dpkg-parsechangelog(1) and apt-listchanges need. The
// project's own changelog lists the changes.
func debianChangelog(version string, at time.Time) []byte {
	return fmt.Appendf(nil, "criguard (%s-1) unstable; urgency=medium\n\n  * This version; /usr/share/doc/criguard/changelog.gz lists the changes.\n\n -- %s  %s\n",
		version, maintainer, at.UTC().Format(time.RFC1123Z))
}

// writeGzip compresses like `gzip -9n`: without a name or a timestamp.
func writeGzip(path string, text []byte) error {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
