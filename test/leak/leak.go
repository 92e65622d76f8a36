// Package leak fails tests that leave descriptors or goroutines behind.
package leak

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// patience is how long leftovers may take to end by themselves.
const patience = 30 * time.Second

// Main runs the tests of a package, which must leave no descriptor and no goroutine behind:
// func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }.
func Main(m interface{ Run() int }) int {
	// The runtime's poller opens its own descriptors once.
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
	before := OpenDescriptors()
	code := m.Run()
	// gRPC's goroutines end by themselves, on a busy machine after seconds.
	left := leaks(before)
	for end := time.Now().Add(patience); left != nil && time.Now().Before(end); left = leaks(before) {
		time.Sleep(time.Millisecond)
	}
	if left != nil {
		fmt.Fprintln(os.Stderr, "leaked:", left)
		code = 1
	}
	return code
}

// leaks returns an error that names what is open and was not before.
func leaks(before map[string]string) error {
	err := goleak.Find()
	for fd, what := range OpenDescriptors() {
		if _, was := before[fd]; !was {
			err = errors.Join(err, fmt.Errorf("descriptor %s: %s", fd, what))
		}
	}
	return err
}

// OpenDescriptors returns this process's descriptors and their targets.
func OpenDescriptors() map[string]string {
	fds := map[string]string{}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		// The descriptor of the directory itself is closed by now.
		if what, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			fds[e.Name()] = what
		}
	}
	return fds
}
