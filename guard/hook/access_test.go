package hook

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Checks of a hanging path wait until the deadline and share one goroutine. Other paths are not
// affected, and the path is checked as usual once it answers.
func TestAccessOfPathThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var looks atomic.Int32
		a := NewAccess(func(path string) error {
			if path == "/dead/hook" {
				looks.Add(1)
				<-release
			}
			return nil
		})
		check := func(path string) (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begin := time.Now()
			err := a.check(ctx, path)
			return time.Since(begin), err
		}
		for range 5 {
			if took, err := check("/dead/hook"); took != time.Second || !errors.Is(err, errNoAnswer) {
				t.Errorf("after %s: %v", took, err)
			}
		}
		if took, err := check("/bin/hook"); took != 0 || err != nil {
			t.Errorf("another path, after %s: %v", took, err)
		}
		if n := looks.Load(); n != 1 {
			t.Errorf("%d checks hang, want 1", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.check(ctx, "/dead/hook"); !errors.Is(err, context.Canceled) {
			t.Errorf("after the service's end: %v", err)
		}
		close(release)
		synctest.Wait()
		if took, err := check("/dead/hook"); took != 0 || err != nil || looks.Load() != 2 {
			t.Errorf("once it answers, after %s: %v, %d checks", took, err, looks.Load())
		}
	})
}

// A program whose filesystem does not answer is not started: execve would suspend the whole
// process.
func TestProgramIsNotStartedWithoutAnswer(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	ran := filepath.Join(t.TempDir(), "ran")
	p := sh("touch " + ran)
	p.Timeout, p.Access = 50*time.Millisecond, NewAccess(func(string) error { <-release; return nil })
	if r := p.runOnce(t.Context(), nil); !errors.Is(r.Err, errNoAnswer) || r.Took < p.Timeout {
		t.Errorf("after %s: %v", r.Took, r.Err)
	}
	if _, err := os.Stat(ran); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was started: %v", err)
	}
}

func TestAccess(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := NewAccess(nil)
	for path, want := range map[string]error{
		write("good", 0o755): nil, write("empty", 0o711): nil, write("data", 0o644): errNotExecutable,
		dir: errNotExecutable, filepath.Join(dir, "none"): os.ErrNotExist,
	} {
		if err := a.check(t.Context(), path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}
