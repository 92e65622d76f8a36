package cgroup

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs a helper process where one was asked for, and else the tests, which
// must leave no descriptor and no goroutine behind.
func TestMain(m *testing.M) {
	if name := os.Getenv(helperVar); name != "" {
		os.Exit(runHelper(name))
	}
	// The runtime's own poller opens its descriptors once.
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
	before := openDescriptors()
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "leaked goroutines:", err)
		code = 1
	}
	for fd, what := range openDescriptors() {
		if _, was := before[fd]; !was {
			fmt.Fprintln(os.Stderr, "leaked descriptor:", fd, what)
			code = 1
		}
	}
	os.Exit(code)
}

// openDescriptors are this process's, with what they are of.
func openDescriptors() map[string]string {
	fds := map[string]string{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		// The directory's own descriptor is gone by now.
		if what, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			fds[e.Name()] = what
		}
	}
	return fds
}
