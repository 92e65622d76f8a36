package main

import (
	"os"
	"testing"
)

// Threads that were started are kept: a node without PIDs gives no others.
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
