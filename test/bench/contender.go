package main

import (
	"context"
	"fmt"

	"github.com/criguard/criguard/cgroup"
)

// contender is a guard that is measured.
type contender interface {
	name() string
	// prepare returns once the guard knows of the hog, where it has to.
	prepare(ctx context.Context, h *hog) error
	// available is what the guard judges memory by, in bytes, read afresh and without
	// asking the guard.
	available() (int64, error)
	// arm returns once the guard acts on less than so many bytes.
	arm(ctx context.Context, level int64) error
	// disarm makes the guard leave memory alone again; what it did is settled then.
	disarm(ctx context.Context) error
	// blamed tells whom the guard says that it stopped since it was armed; "" where it
	// does not say.
	blamed(ctx context.Context, h *hog) (string, error)
	close() error
}

// memoryAvailable is criguard's memory.available: the node's memory without its
// working set.
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

// meminfoAvailable is earlyoom's measure: MemAvailable.
func meminfoAvailable(n *cgroup.Node) (int64, error) {
	info, err := n.MemInfo()
	return info.Available, err
}
