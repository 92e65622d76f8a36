// Package lastgoodtest makes files hang in tests.
package lastgoodtest

import (
	"os"
	"syscall"
	"testing"
)

// Stall replaces a file by one that blocks when it is opened, as on a stalled disk, until the test ends.
func Stall(tb testing.TB, path string) {
	tb.Helper()
	if err := os.Remove(path); err != nil {
		tb.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			_ = f.Close()
		}
	})
}
