package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// home is the directory where labs are registered and, by default, created. Only root can write to
// it.
const home = "/var/lib/criguard-lab"

// registry is a directory with one file per lab. The lab's owner keeps the file locked. The kernel
// releases the lock when the owner dies, for whatever reason, so an unlocked file is a lab to clean
// up.
type registry struct{ dir string }

// record lists what a lab has created outside of its process.
type record struct {
	Dir    string `json:"dir"`    // all files and mounts are below
	Cgroup string `json:"cgroup"` // all processes are below, in every hierarchy
}

// claim is a lab that this process has registered.
type claim struct {
	record
	registry registry
	file     *os.File
}

// claim registers a new lab. It creates the lab's directory below parent, or below the registry if
// parent is empty.
func (r registry) claim(parent string) (*claim, error) {
	unlock, err := r.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if parent == "" {
		parent = r.dir
	}
	for n := 1; ; n++ {
		name := fmt.Sprintf("%d-%d", os.Getpid(), n)
		f, err := os.OpenFile(filepath.Join(r.dir, name+".json"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("register lab: %w", err)
		}
		c := &claim{registry: r, file: f, record: record{Dir: filepath.Join(parent, name), Cgroup: "/criguard-lab-" + name}}
		err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			err = json.NewEncoder(f).Encode(c.record)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("register lab: %w", err), os.Remove(f.Name()), f.Close())
		}
		return c, nil
	}
}

// release unregisters a lab that has been removed completely. With the last lab, it removes what the
// labs shared.
func (c *claim) release() error {
	unlock, err := c.registry.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = errors.Join(os.Remove(c.file.Name()), c.file.Close())
	c.registry.removeUnused()
	return err
}

// removeUnused removes what all labs share if there is none. The caller holds the lock: the first shim of another
// lab would miss its directory.
func (r registry) removeUnused() {
	if names, err := filepath.Glob(filepath.Join(r.dir, "*.json")); err != nil || len(names) > 0 {
		return
	}
	removeShimDir()
	_ = os.Remove(r.dir)
}

// sweep calls clean for every lab whose owner is dead, and unregisters those that were cleaned.
func (r registry) sweep(clean func(record) error) error {
	if _, err := os.Stat(r.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	names, err := filepath.Glob(filepath.Join(r.dir, "*.json"))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, sweepOne(name, clean))
	}
	r.removeUnused()
	return errors.Join(errs...)
}

func sweepOne(name string, clean func(record) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
		return fmt.Errorf("lock %s: %w", name, err)
	}
	var rec record
	if err := json.NewDecoder(f).Decode(&rec); err != nil {
		// The owner died before it wrote the record, and thus before it created anything.
		return os.Remove(name)
	}
	if err := clean(rec); err != nil {
		return fmt.Errorf("clean lab %s: %w", name, err)
	}
	return os.Remove(name)
}

// lock locks the registry's directory. Because the last lab removes the directory, a lock on a
// removed directory does not count.
func (r registry) lock() (unlock func(), err error) {
	for {
		if err := os.MkdirAll(r.dir, 0o700); err != nil {
			return nil, fmt.Errorf("make lab registry: %w", err)
		}
		f, err := os.Open(r.dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open lab registry: %w", err)
		}
		if err := flock(f, unix.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock lab registry: %w", err), f.Close())
		}
		held, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if now, err := os.Stat(r.dir); err == nil && os.SameFile(held, now) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
	}
}
