package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CacheDir returns the cache directory of the runtimes: CRIGUARD_LAB_CACHE if set, else
// criguard-lab below the user's cache directory (XDG_CACHE_HOME or ~/.cache).
func CacheDir() (string, error) {
	if dir := os.Getenv("CRIGUARD_LAB_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w (hint: set CRIGUARD_LAB_CACHE)", err)
	}
	return filepath.Join(dir, "criguard-lab"), nil
}

// lockCache opens the cache directory and locks it, so that test packages that run at the same time
// fetch and build everything once.
func lockCache() (dir string, unlock func(), err error) {
	dir, err = CacheDir()
	if err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("make cache directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("open cache lock: %w", err)
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		return "", nil, errors.Join(fmt.Errorf("lock cache %s: %w", dir, err), f.Close())
	}
	return dir, func() { _ = f.Close() }, nil
}

// flock applies op to f and retries when a signal interrupts the wait. The kernel releases the lock
// with the file's last descriptor, even if the process is killed.
func flock(f *os.File, op int) error {
	for {
		err := unix.Flock(int(f.Fd()), op)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
