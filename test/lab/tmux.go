package lab

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Tmux installs a terminal that tests can type into and read, and returns a function that prepares
// its commands. It uses the machine's tmux or, without one, Debian's, unpacked below the cache
// directory. say is called for steps that take time; nil is silent.
func Tmux(ctx context.Context, say func(format string, args ...any)) (command func(args ...string) *exec.Cmd, err error) {
	if path, err := exec.LookPath("tmux"); err == nil {
		return func(args ...string) *exec.Cmd { return exec.Command(path, args...) }, nil
	}
	return cachedTmux(ctx, say)
}

// cachedTmux returns Debian's tmux from the cache directory.
func cachedTmux(ctx context.Context, say func(string, ...any)) (func(args ...string) *exec.Cmd, error) {
	if say == nil {
		say = func(string, ...any) {}
	}
	cache, unlock, err := lockCache()
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir := filepath.Join(cache, "tmux")
	if err := once(dir, func(dir string) error { return installTmux(ctx, cache, dir, say) }); err != nil {
		return nil, installError("tmux", dir, err)
	}
	libs, err := filepath.Glob(filepath.Join(dir, "usr/lib/*-linux-gnu*"))
	if err != nil {
		return nil, err
	}
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, "usr/bin/tmux"), args...)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libs, ":"))
		return cmd
	}, nil
}

// installTmux unpacks Debian's tmux and its libraries, except the C library, into dir.
func installTmux(ctx context.Context, cache, dir string, say func(string, ...any)) error {
	debs := filepath.Join(cache, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(debs)
	say("downloading tmux from Debian")
	if err := unpackDebian(ctx, cache, debs, dir, "tmux"); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(debs, "tmux_*.deb"))
	if err != nil {
		return err
	}
	depends, err := exec.CommandContext(ctx, "dpkg-deb", append([]string{"-f"}, append(files, "Depends")...)...).Output()
	if err != nil {
		return outputError(err)
	}
	return unpackDebian(ctx, cache, debs, dir, libraries(string(depends))...)
}

// libraries returns the packages in a Debian Depends field except the C library, which must be the
// machine's own.
func libraries(depends string) []string {
	var names []string
	for _, d := range regexp.MustCompile(`(?:^|, *)([a-z0-9.+-]+)`).FindAllStringSubmatch(depends, -1) {
		if d[1] != "libc6" {
			names = append(names, d[1])
		}
	}
	return names
}
