package guard

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

// recordDisks is the pause between two measurements of the disks that pods use. containerd updates its
// figures as often.
const recordDisks = 10 * time.Second

// Record writes a trace until ctx ends: a line every interval, and more lines near a threshold. It returns
// cri.ErrNoRuntime if no runtime answers at the start. If the runtime disappears later, the pods stay as last
// listed. passes returns the passes of a service that guards the node, see trace.Source.
func (l *Look) Record(ctx context.Context, w io.Writer, interval time.Duration, passes trace.Passes) error {
	h := l.host
	if err := h.lister.Current().Err; err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	kick := make(chan struct{}, 1)
	wg.Go(func() {
		h.lister.Run(ctx, func() time.Duration { return max(interval, time.Second) }, kick, nil)
	})
	wg.Go(func() { h.watchEvents(ctx, func() { hint(kick) }) })
	var images atomic.Pointer[[]trace.Image]
	images.Store(new([]trace.Image))
	wg.Go(func() {
		for ctx.Err() == nil {
			h.meter.Measure(ctx, h.lister.Current().Pods)
			if all := h.traceImages(ctx); all != nil {
				images.Store(&all)
			}
			select {
			case <-ctx.Done():
			case <-time.After(max(recordDisks, interval)):
			}
		}
	})
	return trace.Record(ctx, trace.Source{
		Observer: l.guard, Now: h.kernel.Now, Layout: h.kernel.Layout, Passes: passes, Images: func() []trace.Image { return *images.Load() },
		Pods: func() ([]inventory.Pod, []policy.Candidate) {
			pods := h.lister.Current().Pods
			cs := inventory.Candidates(pods)
			h.kernel.Measure(cs)
			return pods, cs
		},
	}, w, interval)
}

// traceImages lists the images for a trace. Without a runtime it returns nil.
func (h *host) traceImages(ctx context.Context) []trace.Image {
	client, err := h.conn.Client()
	if err != nil {
		return nil
	}
	images, err := client.Images(ctx)
	if err != nil {
		return nil
	}
	containers, err := client.Containers(ctx)
	if err != nil {
		return nil
	}
	return trace.ImagesOf(images, containers)
}
