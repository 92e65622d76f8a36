package main

import (
	"context"
	"fmt"
	"time"

	"github.com/criguard/criguard/cgroup"
)

// contender is a guard under measurement.
type contender interface {
	name() string
	// prepare returns once the guard knows about the hog, if it needs to.
	prepare(ctx context.Context, h *hog) error
	// available returns the memory that the guard compares with its threshold, in bytes. It reads
	// it from the kernel, without asking the guard.
	available() (int64, error)
	// arm returns once the guard acts on less than level bytes.
	arm(ctx context.Context, level int64) error
	// disarm makes the guard ignore memory again, after its last action has settled.
	disarm(ctx context.Context) error
	// blamed returns the victim that the guard has named since it was armed, or "" if it does not
	// name one.
	blamed(ctx context.Context, h *hog) (string, error)
	// account describes what the guard did in a try for which it was blamed, or returns "". The memory crossed the level at
	// crossed (CLOCK_MONOTONIC).
	account(crossed time.Duration) string
	close() error
}

// memoryAvailable is criguard's memory.available: the node's memory minus its working set.
func memoryAvailable(n *cgroup.Node) (int64, error) {
	info, err := n.MemInfo()
	if err != nil {
		return 0, err
	}
	m, err := n.Memory(info, 0)
	if err != nil {
		return 0, fmt.Errorf("read memory of the node: %w", err)
	}
	return info.Total - m.WorkingSet(), nil
}

// meminfoAvailable is earlyoom's measure and criguard's meminfo.available: MemAvailable.
func meminfoAvailable(n *cgroup.Node) (int64, error) {
	info, err := n.MemInfo()
	return info.Available, err
}
