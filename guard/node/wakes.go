package node

import (
	"context"
	"time"

	"github.com/criguard/criguard/cgroup"
)

// The stall that wakes the loop, well below any sensible threshold.
const (
	stallTrigger = 100 * time.Millisecond
	stallWithin  = time.Second
)

// NewWaker returns the kernel's waker.
func NewWaker(l cgroup.Layout) (Waker, error) {
	w, err := cgroup.NewWaker(l)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Watch subscribes to every wake-up that this kernel and cgroup layout offer. The timer covers the rest.
func (n *Node) Watch() error {
	w, err := n.opt.NewWaker(n.opt.Layout)
	if err != nil {
		return err
	}
	n.waker = w
	if n.opt.Layout.Version != cgroup.V2 {
		n.addWake("memcg thresholds")
	}
	for _, stall := range []cgroup.Wake{cgroup.WakeMemoryStall, cgroup.WakeIOStall} {
		// Without CAP_SYS_RESOURCE the kernel accepts only a wider window. Every pass reads the pressure,
		// which would starve such a trigger.
		if window, err := w.AddStall(stall, stallTrigger, stallWithin); err == nil && window == stallWithin {
			n.addWake(string(stall))
		}
	}
	if w.AddMounts() == nil {
		n.addWake("mounts")
	}
	n.followPods(nil)
	return nil
}

// ForwardWakes forwards the kernel's wake-ups until ctx ends: to the lister if pods or mounts changed,
// otherwise to the loop.
func (n *Node) ForwardWakes(ctx context.Context, wake func(string), relist func()) {
	if n.waker == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case w, ok := <-n.waker.Wakes():
			if !ok {
				return
			}
			if w == cgroup.WakePods || w == cgroup.WakeMounts {
				n.watchPods()
				relist()
				continue
			}
			wake(string(w))
		}
	}
}
