package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/criguard/criguard/test/node/scenario"
)

// bootLimit limits a boot including the setup, on a machine that runs two at once.
const bootLimit = 8 * time.Minute

// labs holds the files that all machines are made from.
type labs struct {
	dir     string
	image   image
	payload payload

	mu     sync.Mutex
	frozen map[string]*frozen // by profile name
}

// frozen is a booted and set up profile, as files.
type frozen struct {
	mu          sync.Mutex // held while it boots
	root, state string     // set once it is frozen
}

// get returns the profile's frozen machine, and boots it if that has not succeeded yet.
func (l *labs) get(ctx context.Context, p scenario.Profile) (*frozen, error) {
	l.mu.Lock()
	f := l.frozen[p.Name]
	if f == nil {
		f = &frozen{}
		l.frozen[p.Name] = f
	}
	l.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == "" {
		if err := l.boot(ctx, p, f); err != nil {
			f.state = ""
			return nil, fmt.Errorf("boot %s: %w", p.Name, err)
		}
	}
	return f, nil
}

// boot boots the profile, lets the agent set it up, and freezes it.
func (l *labs) boot(ctx context.Context, p scenario.Profile, f *frozen) error {
	dir := filepath.Join(l.dir, p.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f.root, f.state = filepath.Join(dir, "root.img"), filepath.Join(dir, "state")
	if err := run(exec.CommandContext(ctx, "cp", "--sparse=always", "--reflink=auto", l.image.root, f.root)); err != nil {
		return err
	}
	m, err := startMachine(ctx, dir, p, l.image, f.root, l.payload.disk, "")
	if err != nil {
		return err
	}
	err = func() error {
		if _, err := m.await(ctx, scenario.Ready, bootLimit, nil); err != nil {
			return errors.Join(err, m.logTail())
		}
		if err := m.order(scenario.Order{Profile: p}); err != nil {
			return err
		}
		done, err := m.await(ctx, scenario.Done, bootLimit, nil)
		if err != nil {
			return errors.Join(err, m.logTail())
		}
		if len(done.Failures) > 0 {
			return fmt.Errorf("set up node: %v\n%s", done.Failures, done.Journal)
		}
		return m.qmp.freeze(f.state)
	}()
	return errors.Join(err, m.end())
}
