package lab

import (
	"context"
	"path/filepath"
)

// InstallPackage unpacks a Debian package below the cache directory, unless it is already there,
// and returns the directory with its files. The package's dependencies must be on the system.
// Nothing is installed there.
func InstallPackage(ctx context.Context, name string, say func(format string, args ...any)) (string, error) {
	cache, unlock, err := lockCache()
	if err != nil {
		return "", err
	}
	defer unlock()
	dir := filepath.Join(cache, name)
	err = once(dir, func(dir string) error {
		if say != nil {
			say("downloading %s from Debian", name)
		}
		return withDownloads(cache, func(debs string) error { return unpackDebian(ctx, cache, debs, dir, name) })
	})
	if err != nil {
		return "", installError(name, dir, err)
	}
	return dir, nil
}
