package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// RunDir is the directory under /run where the service keeps its socket, its
// lock, its budget and its conditions file.
type RunDir string

// DefaultRunDir is where the service looks when nothing else is said.
const DefaultRunDir RunDir = "/run/criguard"

// ErrRunning says that another criguard guards from the same directory.
var ErrRunning = errors.New("another criguard is running")

func (d RunDir) path(name string) string { return filepath.Join(string(d), name) }

// Socket is the control socket.
func (d RunDir) Socket() string { return d.path("criguard.sock") }

// Lock takes the directory for this process, creating it where it is missing.
// The lock goes with the process, so that a crash leaves none behind. A second
// taker gets ErrRunning with the holder's process ID.
func (d RunDir) Lock() (release func(), err error) {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return nil, fmt.Errorf("create runtime directory: %w", err)
	}
	f, err := os.OpenFile(d.path("lock"), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 16)
		n, _ := f.Read(holder)
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w (pid %s)", d.path("lock"), ErrRunning, trimLine(holder[:n]))
		}
		return nil, fmt.Errorf("lock %s: %w", d.path("lock"), err)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return func() { _ = f.Close() }, nil
}

func trimLine(b []byte) string {
	for i, c := range b {
		if c < ' ' {
			return string(b[:i])
		}
	}
	return string(b)
}

// writeFile replaces a small file. /run is memory: nothing is synced.
func (d RunDir) writeFile(name string, data []byte) error {
	return replaceFile(string(d), name, data, false)
}

// synced has replaceFile wait until the disk has what is written.
const synced = true

// replaceFile replaces a file so that readers see the old or the new one, never a part, and,
// where it is synced, so do those who come after power has failed.
func replaceFile(dir, name string, data []byte, sync bool) error {
	f, err := os.CreateTemp(dir, "."+name+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err = f.Write(data); err == nil && sync {
		err = f.Sync()
	}
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// FindRunDir is the directory that was named, or the one that the service manager
// made, or the default.
func FindRunDir(named string) RunDir {
	if named == "" {
		named = os.Getenv("RUNTIME_DIRECTORY")
	}
	if named == "" {
		return DefaultRunDir
	}
	return RunDir(named)
}
