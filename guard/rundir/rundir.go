package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Dir is the directory under /run where the service keeps its socket, lock, budget and conditions
// file.
type Dir string

// Default is the directory used unless another one is given.
const Default Dir = "/run/criguard"

// ErrRunning means that another criguard uses the same directory.
var ErrRunning = errors.New("another criguard is running")

// Path returns the path of a file in the directory.
func (d Dir) Path(name string) string { return filepath.Join(string(d), name) }

// Socket returns the path of the control socket.
func (d Dir) Socket() string { return d.Path("criguard.sock") }

// FleetSocket returns the path of the socket on which the fleet's agent answers the guard. systemd creates it, so
// that a compromised agent cannot replace it.
func (d Dir) FleetSocket() string { return d.Path("fleet.sock") }

// Lock is the lock of a run directory. The kernel releases it when the process ends, even after a crash.
type Lock struct {
	dir  Dir
	file *os.File
}

// Renew takes the lock again if its file was removed, with the directory or alone.
func (l *Lock) Renew() error {
	at, err := os.Lstat(l.dir.Path("lock"))
	if is, statErr := l.file.Stat(); err == nil && statErr == nil && os.SameFile(is, at) {
		return nil
	}
	_ = os.Chmod(string(l.dir), 0o755) // a saved file may have created it again, with the process's umask
	again, err := l.dir.Lock()
	if err != nil {
		return err
	}
	l.Release()
	*l = *again
	return nil
}

// Release releases the lock.
func (l *Lock) Release() { _ = l.file.Close() }

// Lock locks the directory for this process, and creates it if it is missing. If the lock is taken, Lock
// returns ErrRunning with the holder's process ID.
func (d Dir) Lock() (*Lock, error) {
	if err := d.create(); err != nil {
		return nil, fmt.Errorf("create runtime directory: %w", err)
	}
	f, err := os.OpenFile(d.Path("lock"), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, forRoot().Mode)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := forRoot().Apply(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("protect lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 16)
		n, _ := f.Read(holder)
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w (pid %s)", d.Path("lock"), ErrRunning, trimLine(holder[:n]))
		}
		return nil, fmt.Errorf("lock %s: %w", d.Path("lock"), err)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return &Lock{d, f}, nil
}

// create creates the directory if it is missing, but not its parent, which a typing error would name. It
// overrides the umask: other users need access to the conditions file.
func (d Dir) create() error {
	err := os.Mkdir(string(d), 0o755)
	if errors.Is(err, fs.ErrExist) {
		if st, statErr := os.Stat(string(d)); statErr == nil && st.IsDir() {
			return nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w (hint: --run-dir names a directory whose parent exists)", err)
	} else if err != nil {
		return err
	}
	return os.Chmod(string(d), 0o755)
}

func trimLine(b []byte) string {
	for i, c := range b {
		if c < ' ' {
			return string(b[:i])
		}
	}
	return string(b)
}

// Find returns the named directory, or else the one from the service manager ($RUNTIME_DIRECTORY), or else the default. A drop-in
// of the unit may add further directories, after a colon.
func Find(named string) Dir {
	if named == "" {
		named, _, _ = strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":")
	}
	if named == "" {
		return Default
	}
	return Dir(named)
}

// FindService is Find for a command that asks a service. The unit of another program that runs the command has a runtime directory
// of its own, in which no service has ever been.
func FindService(named string) Dir {
	d := Find(named)
	if named != "" {
		return d
	}
	if _, err := os.Lstat(d.Path("lock")); errors.Is(err, fs.ErrNotExist) {
		return Default
	}
	return d
}
