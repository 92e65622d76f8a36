package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// installDebian unpacks Debian's containerd and runc into dir. It uses only apt's download command,
// which installs nothing.
func installDebian(ctx context.Context, cache, dir string, say func(string, ...any)) error {
	return withDownloads(cache, func(debs string) error {
		say("downloading containerd and runc from Debian")
		if err := unpackDebian(ctx, cache, debs, dir, "containerd", "runc"); err != nil {
			return err
		}
		p := Programs{Dirs: []string{filepath.Join(dir, "usr/sbin"), filepath.Join(dir, "usr/bin")}}
		if _, err := p.command(ctx, "runc", "--version").Output(); err == nil {
			return nil
		}
		say("downloading libseccomp2, which runc needs and this machine lacks")
		return unpackDebian(ctx, cache, debs, dir, "libseccomp2")
	})
}

// withDownloads calls use with a directory for downloads, and removes it afterwards.
func withDownloads(cache string, use func(debs string) error) error {
	debs := filepath.Join(cache, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	return errors.Join(use(debs), os.RemoveAll(debs))
}

// unpackDebian downloads the packages to debs and unpacks them below dir.
func unpackDebian(ctx context.Context, cache, debs, dir string, packages ...string) error {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("find %s: %w: the lab takes what it runs from Debian packages", tool, err)
		}
	}
	for _, name := range packages {
		if err := aptGet(ctx, cache, debs, "download", name); err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(debs, name+"_*.deb"))
		if err != nil || len(files) == 0 {
			return errors.Join(fmt.Errorf("find downloaded package %s: not in %s", name, debs), err)
		}
		if err := run(exec.CommandContext(ctx, "dpkg-deb", "-x", files[0], dir)); err != nil {
			return err
		}
	}
	return nil
}

// aptGet runs apt-get in dir with the system's package lists. If those are missing or stale, it
// uses fresh ones that exist only in the cache. It leaves no package index in /var/cache/apt.
func aptGet(ctx context.Context, cache, dir string, args ...string) error {
	attempt := func(options ...string) error {
		cmd := exec.CommandContext(ctx, "apt-get", slices.Concat([]string{"-q", "-o", "APT::Sandbox::User=root", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="}, options, args)...)
		cmd.Dir = dir
		return run(cmd)
	}
	first := attempt()
	if first == nil {
		return nil
	}
	apt := filepath.Join(cache, "apt")
	if err := os.MkdirAll(filepath.Join(apt, "lists/partial"), 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(apt)
	options := []string{
		"-o", "Dir::State::Lists=" + filepath.Join(apt, "lists"),
		"-o", "Dir::Cache::pkgcache=" + filepath.Join(apt, "pkgcache.bin"),
		"-o", "Dir::Cache::srcpkgcache=" + filepath.Join(apt, "srcpkgcache.bin"),
	}
	update := append([]string{"-q", "-o", "APT::Sandbox::User=root"}, options...)
	if err := run(exec.CommandContext(ctx, "apt-get", append(update, "update")...)); err != nil {
		return errors.Join(first, err)
	}
	if err := attempt(options...); err != nil {
		return errors.Join(first, err)
	}
	return nil
}
