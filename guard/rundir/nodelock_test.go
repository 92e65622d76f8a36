package rundir

import (
	"slices"
	"syscall"
	"testing"
)

// A lock whose address another program uses is reported, and the others are taken.
func TestLockNodeReportsATakenAddress(t *testing.T) {
	taken, free := "taken "+t.TempDir(), "free "+t.TempDir()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: lockAddress(taken)}); err != nil { // accepts no connection
		t.Fatal(err)
	}
	release, missed, err := Dir("/run/first").LockNode(taken, free)
	if err != nil || !slices.Equal(missed, []string{taken}) {
		t.Fatalf("missed %q, %v", missed, err)
	}
	release()
}
