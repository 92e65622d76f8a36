package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/criguard/criguard/test/need"
)

// pool holds the labs of one test binary, by runtime.
type pool struct {
	mu   sync.Mutex
	labs map[string]*Lab
}

// shared lives as long as the test binary, because its tests have no other common owner.
var shared pool

// test is the part of testing.TB that Shared needs. It keeps the testing package out of the demo.
type test interface {
	need.TB
	Logf(format string, args ...any)
}

// Shared returns the test binary's lab on the given runtime (see Runtimes) and starts it on the
// first call. Tests that share it must remove their pods. A test that needs a node of its own uses
// Start. The package's TestMain must use Main, which closes the lab.
func Shared(t test, runtime string) *Lab {
	t.Helper()
	need.Root(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if l := shared.labs[runtime]; l != nil {
		return l
	}
	l, err := Start(context.Background(), Options{Containerd: runtime, Say: t.Logf})
	if err != nil {
		t.Fatalf("%v", err)
	}
	if shared.labs == nil {
		shared.labs = map[string]*Lab{}
	}
	shared.labs[runtime] = l
	return l
}

// Main runs the tests of a package and then closes the shared labs: func TestMain(m *testing.M) {
// os.Exit(lab.Main(m)) }. A lab that leaves something behind fails the run. The prepare functions,
// such as BuildCriguard, run before the tests, in a directory that is removed afterwards.
func Main(m interface{ Run() int }, prepare ...func(ctx context.Context, dir string) error) int {
	code, err := runMain(m, prepare)
	if err := errors.Join(err, shared.close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

func runMain(m interface{ Run() int }, prepare []func(ctx context.Context, dir string) error) (code int, err error) {
	dir, err := os.MkdirTemp("", "criguard-test-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// By default, each program built with the race detector sleeps for a second when it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		return 0, err
	}
	for _, do := range prepare {
		if err := do(context.Background(), dir); err != nil {
			return 0, err
		}
	}
	return m.Run(), nil
}

func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for runtime, l := range p.labs {
		errs = append(errs, l.Close())
		left, err := l.Leftovers()
		errs = append(errs, err)
		for _, thing := range left {
			errs = append(errs, fmt.Errorf("left behind: %s, by the lab on containerd %s", thing, runtime))
		}
	}
	p.labs = nil
	return errors.Join(errs...)
}
