package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/test/lab"
)

// hog is a pod that takes memory once it is released.
type hog struct {
	pod   *lab.RunningPod
	pid   int
	pidfd int
	dir   string // shared with the pod
	page  []byte // where it records its progress
}

// startHog starts a hog that will take total MiB at rate MiB per second.
func (b *bench) startHog(ctx context.Context, spec lab.PodSpec, rate float64, total int64) (*hog, error) {
	spec.Namespace, spec.Annotations = "bench", withoutKubelet()
	spec.Containers = []lab.ContainerSpec{{
		Name: "main", Attempt: spec.Attempt,
		Args: []string{
			"hog", "-mib", fmt.Sprint(total), "-rate", fmt.Sprint(rate),
			"-when", "/ctl/go", "-progress", "/ctl/progress",
		},
		EmptyDirs: map[string]string{"ctl": "/ctl"},
	}}
	pod, err := b.lab.RunPod(ctx, spec)
	if err != nil {
		return nil, err
	}
	h := &hog{pod: pod, pidfd: -1, dir: filepath.Join(b.lab.KubeletRoot(), "pods", pod.UID, "volumes/kubernetes.io~empty-dir/ctl")}
	if err := h.open(ctx, b.lab); err != nil {
		h.remove(ctx, b)
		return nil, fmt.Errorf("start hog: %w", err)
	}
	return h, nil
}

func (h *hog) open(ctx context.Context, l *lab.Lab) error {
	var err error
	if h.pid, err = l.PID(ctx, h.pod.Containers[0].ID); err != nil {
		return err
	}
	if h.pidfd, err = unix.PidfdOpen(h.pid, 0); err != nil {
		return err
	}
	path := filepath.Join(h.dir, "progress")
	return until(ctx, "the hog to be ready", func() (bool, error) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return false, err
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || info.Size() < int64(os.Getpagesize()) {
			return false, err
		}
		h.page, err = unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
		return err == nil, err
	})
}

// letGo releases the hog.
func (h *hog) letGo() error { return os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600) }

// taken returns how many bytes the hog has taken.
func (h *hog) taken() int64 { return h.word(0) }

// last returns when it took the last of them, and began when it started, both on CLOCK_MONOTONIC.
func (h *hog) last() time.Duration  { return time.Duration(h.word(1)) }
func (h *hog) began() time.Duration { return time.Duration(h.word(2)) }

func (h *hog) word(i int) int64 { return atomic.LoadInt64((*int64)(unsafe.Pointer(&h.page[8*i]))) }

// remove removes the hog and everything that belongs to it.
func (h *hog) remove(ctx context.Context, b *bench) {
	if h.pidfd >= 0 {
		_ = unix.Close(h.pidfd)
	}
	if h.page != nil {
		_ = unix.Munmap(h.page)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := b.lab.RemovePod(ctx, h.pod); err != nil {
		b.say("%v", err)
	}
}
