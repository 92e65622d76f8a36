package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// home is where labs are registered and, unless told otherwise, live. Only root can write there.
const home = "/var/lib/criguard-lab"

// registry is a directory with one file per lab. Its owner keeps that file locked, and the kernel drops the lock when the owner dies,
// however it dies: an unlocked file is a lab to clean up.
type registry struct{ dir string }

// record says what a lab has made outside of its own memory.
type record struct {
	Dir    string `json:"dir"`    // everything on disk and all mounts are below
	Cgroup string `json:"cgroup"` // everything that runs is below, in every hierarchy
}

// claim is a registered lab of this process.
type claim struct {
	record
	registry registry
	file     *os.File
}

// claim registers a new lab. Its directory is made below parent, or below the registry if parent is empty.
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

// release forgets a lab of which nothing is left, and the registry's directory with the last one.
func (c *claim) release() error {
	unlock, err := c.registry.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = errors.Join(os.Remove(c.file.Name()), c.file.Close())
	_ = os.Remove(c.registry.dir)
	return err
}

// sweep hands every lab whose owner is dead to clean and forgets those that it cleaned.
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
	_ = os.Remove(r.dir)
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
		// The owner died before the record was written, and so before anything was made.
		return os.Remove(name)
	}
	if err := clean(rec); err != nil {
		return fmt.Errorf("clean lab %s: %w", name, err)
	}
	return os.Remove(name)
}

// lock takes the registry's lock, which is its directory. The last lab removes the directory, so a lock on one that is gone does not
// count.
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
