package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// browserPackages are a web browser and what it writes text with.
var browserPackages = []string{"chromium", "fonts-dejavu-core"}

// Browser makes Debian's Chromium ready in a root of its own below the cache directory, unless it already is, and returns a program
// that starts it there. It needs root, and apt and dpkg of the machine. The browser sees the machine's network, but none of its files.
// say is told about every step that takes time; nil is silent.
func Browser(ctx context.Context, say func(format string, args ...any)) (path string, err error) {
	if say == nil {
		say = func(string, ...any) {}
	}
	cache, unlock, err := lockCache()
	if err != nil {
		return "", err
	}
	defer unlock()
	dir := filepath.Join(cache, "browser")
	err = once(dir, func(partial string) error {
		if err := fillRoom(ctx, cache, partial, browserPackages, say); err != nil {
			return err
		}
		// The command of a browser in the root, with what a shell passes on. Its sandbox wants namespaces of its own.
		args := inRoom(ctx, dir, "chromium", "--no-sandbox").Args
		for i := range args {
			args[i] = "'" + strings.ReplaceAll(args[i], "'", `'\''`) + "'"
		}
		script := fmt.Sprintf("#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root exec %s \"$@\"\n", strings.Join(args, " "))
		return os.WriteFile(filepath.Join(partial, "browser"), []byte(script), 0o755)
	})
	if err != nil {
		return "", installError("chromium", dir, err)
	}
	return filepath.Join(dir, "browser"), nil
}
