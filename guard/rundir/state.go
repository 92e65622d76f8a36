package rundir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/criguard/criguard/guard/safetext"
)

// maxState is the largest state file that is read, in bytes. The largest that criguard writes is the stop budget: with the
// highest hourly cap, it has 2,000 stops of up to 900 bytes.
const maxState = 4 << 20

var errTooLarge = errors.New("too large")

// Load reads a state file and returns what parse does with its content, or the zero T without a file. A damaged file stays
// until the next Save. On a disk that may stall, the caller limits its wait, as with package lastgood.
func Load[T any](d Dir, name string, a Access, parse func([]byte) (T, error)) (v T, err error) {
	b, err := d.ReadFile(name, a)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return v, nil
	case err != nil:
		return v, err
	}
	return parse(b)
}

// ReadFile reads a small file.
func (d Dir) ReadFile(name string, a Access) ([]byte, error) {
	f, err := a.Open(d.Path(name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err == nil && len(b) > maxState {
		return nil, &fs.PathError{Op: "read", Path: f.Name(), Err: errTooLarge}
	}
	return b, err
}

// Synced makes Save and Replace wait until the data is on disk. A file under /run is in memory.
const Synced = true

// Save replaces a state file with the JSON of v on one line, without unsafe characters.
func Save(d Dir, name string, a Access, v any, sync bool) error {
	b, err := safetext.JSON(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return a.Replace(string(d), name, append(b, '\n'), sync)
}

// States are the state files of a run directory, which is in memory. It keeps what could not be saved, such as while /run was
// full.
type States struct {
	Dir     Dir
	Access  Access
	unsaved map[string]any
}

// Save saves a file, as the function of that name does. If that fails, v is kept for Retry.
func (s *States) Save(name string, v any) error {
	err := Save(s.Dir, name, s.Access, v, !Synced)
	switch {
	case err == nil:
		delete(s.unsaved, name)
	case s.unsaved == nil:
		s.unsaved = map[string]any{name: v}
	default:
		s.unsaved[name] = v
	}
	return err
}

// Retry tries again to save what could not be saved.
func (s *States) Retry() {
	for name, v := range s.unsaved {
		_ = s.Save(name, v)
	}
}

// Replace replaces a file atomically: readers see the old or the new content, never a part. With
// sync, this also holds after a power failure.
func (a Access) Replace(dir, name string, data []byte, sync bool) error {
	return a.ReplaceBy(dir, name, sync, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// ReplaceBy is like Replace, with content that the function write produces.
func (a Access) ReplaceBy(dir, name string, sync bool, write func(io.Writer) error) error {
	f, err := os.CreateTemp(dir, TemporaryName(name))
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err = write(f); err == nil && sync {
		err = f.Sync()
	}
	err = errors.Join(err, a.Apply(f), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// TemporaryName returns the pattern of the temporary files that Replace creates; see
// SweepTemporary.
func TemporaryName(name string) string { return "." + name + "-*" }

// SweepTemporary removes temporary files that a crash left in dir and that are at least older old. It removes
// only regular files with criguard's own temporary names.
func SweepTemporary(dir string, older time.Duration, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the directory does not exist, or the next write reports the error
	}
	temporary := regexp.MustCompile(`^\.(history\.jsonl|stop-[0-9]+\.json|budget\.json|samples\.json|orders\.json|fleet(-agent)?\.json|conditions\.json|thresholds\.json)-[0-9]+$`)
	for _, e := range entries {
		if !temporary.MatchString(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) >= older {
			_ = os.Remove(filepath.Join(dir, e.Name())) // best effort: the file only takes space
		}
	}
}
