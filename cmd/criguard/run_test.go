package main

import (
	"os"
	"testing"
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
