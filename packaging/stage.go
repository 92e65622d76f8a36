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

// maintainer signs the Debian changelog; nfpm.yaml names the same.
const maintainer = "The criguard authors <criguard@users.noreply.github.com>"

// fillStage makes the files of the packages that are not in the tree as they are there.
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

// observing is the example of a configuration with observe mode switched on: a package that
// was just installed watches, decides and tells, and stops nothing.
func observing(example []byte) ([]byte, error) {
	from, to := []byte("\nmode = \"enforce\"\n"), []byte("\nmode = \"observe\"\n")
	if n := bytes.Count(example, from); n != 1 {
		return nil, fmt.Errorf("switch observe mode on: %d lines say %q, want one", n, bytes.TrimSpace(from))
	}
	return bytes.Replace(example, from, to, 1), nil
}

// manPages compresses every page of the tree, as criguard.1 or criguard.toml.5.
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

// debianChangelog is the one entry that dpkg-parsechangelog(1) and apt-listchanges need; what
// changed is told in the project's own changelog.
func debianChangelog(version string, at time.Time) []byte {
	return fmt.Appendf(nil, "criguard (%s-1) unstable; urgency=medium\n\n  * This version; /usr/share/doc/criguard/changelog.gz tells what changed.\n\n -- %s  %s\n",
		version, maintainer, at.UTC().Format(time.RFC1123Z))
}

// writeGzip compresses as `gzip -9n` does: without a name and a time.
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
