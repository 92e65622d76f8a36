package guard

import (
	"context"
	"errors"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
)

// Stalls that wake the loop: long before any threshold that makes sense is met.
const (
	stallTrigger = 100 * time.Millisecond
	stallWithin  = time.Second
)

// startWaker makes the kernel wake the loop, by whatever this kernel and this
// layout offer; what they do not offer, the timer covers.
func (k *nodeKernel) startWaker() error {
	w, err := cgroup.NewWaker(k.layout)
	if err != nil {
		return err
	}
	k.waker = w
	if k.layout.Version != cgroup.V2 {
		k.addWake("memcg thresholds")
	}
	for _, stall := range []cgroup.Wake{cgroup.WakeMemoryStall, cgroup.WakeIOStall} {
		// A wider window than asked for is what a process without CAP_SYS_RESOURCE
		// gets, and reading the pressure, as every pass does, starves it.
		if window, err := w.AddStall(stall, stallTrigger, stallWithin); err == nil && window == stallWithin {
			k.addWake(string(stall))
		}
	}
	if w.AddMounts() == nil {
		k.addWake("mounts")
	}
	k.followPods(nil)
	return nil
}

// forwardWakes passes the kernel's wakes on until ctx ends: to the loop, or, where
// they say that pods or mounts changed, to the lister.
func (n *node) forwardWakes(ctx context.Context, wake func(string), relist func()) {
	if n.kernel.waker == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case w, ok := <-n.kernel.waker.Wakes():
			if !ok {
				return
			}
			if w == cgroup.WakePods || w == cgroup.WakeMounts {
				n.kernel.watchPods()
				relist()
				continue
			}
			wake(string(w))
		}
	}
}

// eventsPause is how long after a stream of events ended the runtime is asked
// for another: not sooner than a listing is due anyway.
const eventsPause = 10 * time.Second

// watchEvents takes the runtime's events as hints to list, until ctx ends, where
// listening takes them away from nobody. That a stream begins or ends is a hint, too:
// nobody told what happened between two of them, and without one the pause is short.
func (n *node) watchEvents(ctx context.Context, relist func()) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		pause.Reset(eventsPause)
		client, err := n.conn.Client()
		if _, v := n.conn.Version(); err != nil || !v.EventsShareable() {
			continue
		}
		n.subscribed.Store(int64(cgroup.BootTime()))
		relist()
		for _, err := range client.Events(ctx) {
			if errors.Is(err, cri.ErrUnsupported) {
				pause.Reset(time.Hour) // switched off, as by default on CRI-O
			}
			if err != nil {
				break
			}
			relist()
		}
		n.subscribed.Store(0)
		relist()
	}
}

// hinted reports whether the runtime tells of changes by itself. A stream counts once
// it has lasted: where there are no events, it is ended at once.
func (n *node) hinted() bool {
	since := time.Duration(n.subscribed.Load())
	return since != 0 && cgroup.BootTime()-since >= eventsPause
}
