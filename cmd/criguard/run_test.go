package main

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The Go runtime keeps started threads: a node without free PIDs cannot start more.
func TestStartThreads(t *testing.T) {
	const want = 64
	startThreads(want)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(tasks) < want {
		t.Errorf("%d threads, want %d", len(tasks), want)
	}
}

// SIGHUP does not end a service that is shutting down.
func TestHangupAtTheEnd(t *testing.T) {
	const inChild = "HANG_UP_AT_THE_END"
	if os.Getenv(inChild) == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestHangupAtTheEnd$")
		child.Env = append(os.Environ(), inChild+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGWINCH) // starts the goroutine that all signals share
	others := runtime.NumGoroutine()
	ended, end := context.WithCancel(t.Context())
	onHangup(ended, nil)
	end()
	for runtime.NumGoroutine() > others {
		runtime.Gosched()
	}
	runtime.LockOSThread()
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), syscall.SIGHUP); err != nil { // handled before it returns
		t.Fatal(err)
	}
}
