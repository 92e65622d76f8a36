package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// browserPackages are a web browser and a font for it.
var browserPackages = []string{"chromium", "fonts-dejavu-core"}

// Browser installs Debian's Chromium in a root of its own below the cache directory, unless it is
// already there, and returns a program that starts it. It needs root, and apt and dpkg of the
// machine. The browser can use the machine's network, but sees none of its files. say is called for
// every step that takes time; nil is silent.
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
		// The command runs a browser in the root and passes the shell's arguments on. Chromium's
		// sandbox would need namespaces of its own.
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
