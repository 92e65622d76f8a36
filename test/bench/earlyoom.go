package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/criguard/criguard/test/lab"
)

// earlyoom is Debian's earlyoom with its fastest settings: it kills at once at the configured
// level, without reports and notifications, and with the priority that it sets for itself (-p: a
// nice value of −20).
type earlyoom struct {
	bench   *bench
	program string
	cmd     *exec.Cmd
	ended   chan struct{} // closed after it has exited; err is set then
	err     error

	mu  sync.Mutex
	log bytes.Buffer
}

// newEarlyoom prepares earlyoom.
func (b *bench) newEarlyoom(ctx context.Context) (*earlyoom, error) {
	dir, err := lab.InstallPackage(ctx, "earlyoom", b.say)
	if err != nil {
		return nil, err
	}
	e := &earlyoom{bench: b, program: filepath.Join(dir, "usr/bin/earlyoom")}
	// earlyoom prints "earlyoom v1.7" to standard error and exits.
	out, _ := exec.CommandContext(ctx, e.program, "-v").CombinedOutput()
	b.report.Earlyoom = strings.TrimPrefix(strings.TrimSpace(string(out)), "earlyoom ")
	if b.report.Earlyoom == "" {
		return nil, errors.New("ask earlyoom for its version: no answer")
	}
	return e, nil
}

// Write collects the log.
func (e *earlyoom) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.log.Write(b)
}

func (e *earlyoom) logged() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.log.String()
}

func (e *earlyoom) name() string { return "earlyoom" }

func (e *earlyoom) prepare(context.Context, *hog) error { return nil }

func (e *earlyoom) available() (int64, error) { return meminfoAvailable(e.bench.node) }

// arm starts earlyoom with the level as a flag. The second number is the level at which it sends
// SIGKILL instead of SIGTERM.
func (e *earlyoom) arm(ctx context.Context, level int64) error {
	e.mu.Lock()
	e.log.Reset()
	e.mu.Unlock()
	kib := level >> 10
	e.cmd = exec.Command(e.program, "-r", "0", "-p", "-M", fmt.Sprintf("%d,%d", kib, kib))
	e.cmd.Stdout, e.cmd.Stderr = e, e
	if err := e.cmd.Start(); err != nil {
		return fmt.Errorf("start earlyoom: %w", err)
	}
	e.ended = make(chan struct{})
	go func() {
		e.err = e.cmd.Wait()
		close(e.ended)
	}()
	return until(ctx, "earlyoom to watch", func() (bool, error) {
		select {
		case <-e.ended:
			return false, fmt.Errorf("earlyoom ended: %w: %s", e.err, e.logged())
		default:
			return strings.Contains(e.logged(), "SIGKILL when"), nil
		}
	})
}

func (e *earlyoom) disarm(context.Context) error { return e.close() }

// blamed returns the hog's name if earlyoom's log says that it killed the hog, and otherwise the
// whole log.
func (e *earlyoom) blamed(_ context.Context, h *hog) (string, error) {
	if strings.Contains(e.logged(), fmt.Sprintf("process %d ", h.pid)) {
		return "bench/" + h.pod.Name, nil
	}
	return strings.TrimSpace(e.logged()), nil
}

func (e *earlyoom) account(time.Duration) string { return "" }

func (e *earlyoom) close() error {
	if e.cmd == nil {
		return nil
	}
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	<-e.ended
	e.cmd = nil
	return nil
}
