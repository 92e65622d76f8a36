package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// pool is the labs of one test binary, by runtime.
type pool struct {
	mu   sync.Mutex
	labs map[string]*Lab
}

// shared lives as long as the test binary, whose tests have nothing else in common that could hold it.
var shared pool

// test is the part of testing.TB that Shared needs; it spares the demo the testing package.
type test interface {
	Helper()
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Shared returns the test binary's lab on the given runtime (see Runtimes) and starts it at the first call. Tests that share it remove
// the pods they run; one that needs a node of its own uses Start. The package's TestMain must go through Main, which closes it.
func Shared(t test, runtime string) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("needs root, for a private containerd with mounts and cgroups")
	}
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

// Main runs the tests of a package and then closes the shared labs: func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }. A lab that
// leaves something behind fails the run. What the tests need, as BuildCriguard does it, is made ready before them in a directory that
// goes after them.
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
	// Without it, each program with the race detector sleeps for a second at its end.
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
			errs = append(errs, fmt.Errorf("lab on containerd %s left behind: %s", runtime, thing))
		}
	}
	p.labs = nil
	return errors.Join(errs...)
}
