package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// trouble is a fault of the runtime during a breach.
type trouble struct {
	name string
	// begin injects the fault; end removes it.
	begin func(ctx context.Context, b *bench, h *hog) (end func() error, err error)
}

// slowBy is the delay of each call to a slow runtime, in seconds.
const slowBy = 5

// troubles returns the runtime's faults.
func troubles(slow *slowProxy) []trouble {
	return []trouble{
		{"containerd stopped", func(_ context.Context, b *bench, _ *hog) (func() error, error) {
			return b.lab.ResumeContainerd, b.lab.PauseContainerd()
		}},
		{"the hog's shim stopped", func(_ context.Context, b *bench, h *hog) (func() error, error) {
			return func() error { return b.lab.ResumeShim(h.pod.SandboxID) }, b.lab.PauseShim(h.pod.SandboxID)
		}},
		{fmt.Sprintf("%d s for each call", slowBy), func(context.Context, *bench, *hog) (func() error, error) {
			slow.setSlow(true)
			return func() error { slow.setSlow(false); return nil }, nil
		}},
	}
}

// measureRuntimes lets hogs leak while the runtime hangs or is slow.
func measureRuntimes(ctx context.Context, b *bench) (err error) {
	if err := b.stage(ctx); err != nil {
		return err
	}
	slow, err := newSlowProxy(filepath.Join(b.lab.Dir(), "slow.sock"), b.lab.Endpoint())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, slow.close()) }()
	g, err := b.startCriguard(ctx, killDirect, slow.endpoint(), false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	for _, t := range troubles(slow) {
		b.say("criguard, %s: %d tries", t.name, b.tries/2)
		row := latency{Guard: g.name(), Case: t.name, Rate: goalRate, HeadroomMiB: b.headroom}
		if err := b.tryAll(ctx, g, &row, max(b.tries/2, 1), t); err != nil {
			return err
		}
		if row.Dead.N > 0 {
			b.report.Runtimes = append(b.report.Runtimes, row)
		}
	}
	return nil
}

// gone waits until the runtime reports a hog's sandbox as stopped and nothing is left of it: no
// shim and no cgroup.
func (b *bench) gone(ctx context.Context, h *hog) error {
	return until(ctx, "the sandbox to be stopped", func() (bool, error) {
		if ready, err := b.lab.Ready(ctx, h.pod.SandboxID); ready || err != nil {
			return false, err
		}
		if shims := b.lab.ShimsOf(h.pod.SandboxID); len(shims) > 0 {
			return false, fmt.Errorf("its shim %v still runs", shims)
		}
		dir := b.lab.MemoryCgroupDir(filepath.Join(h.pod.CgroupParent, h.pod.SandboxID))
		if unix.Access(dir, unix.F_OK) == nil {
			return false, fmt.Errorf("%s is still there", dir)
		}
		return true, nil
	})
}
