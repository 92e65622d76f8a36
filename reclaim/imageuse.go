package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
)

// askSandboxAgain is the time to the next request for the details of a sandbox whose shim hangs, or that the
// runtime refuses to describe. A container's status does not need the shim.
const (
	askSandboxAgain   = 10 * time.Minute
	askContainerAgain = time.Minute
)

// errNotAsked: criguard did not request a container's status, because other requests hung.
var errNotAsked = errors.New("not asked for: the runtime did not answer for others")

// useCache caches details of containers and sandboxes that a listing lacks and that never change.
type useCache struct {
	asks     chan struct{}                   // holds one element while the runtime is asked; guards the next four
	volumes  map[string]*cri.ContainerDetail // by container; nil = it has no image volume
	failed   map[string]failedStatus         // by container
	sandbox  map[string]string               // image, by sandbox
	askAfter map[string]time.Duration        // by sandbox
	mu       sync.Mutex                      // guards the rest
	listed   time.Duration                   // when the images were last listed; 0 = never
	absent   map[string]time.Duration        // by image: when a listing last lacked it, if ever
}

// failedStatus is a container whose status the runtime does not return.
type failedStatus struct {
	err   error
	after time.Duration // when to ask again
}

// doubt is a container that may have mounted images that are unknown.
type doubt struct {
	id, name string
	since    time.Duration // by this time the container had been seen
	err      error
}

// note returns the container and the reason.
func (d doubt) note() string { return "container " + d.name + " (" + d.id + "): " + d.err.Error() }

// imageUse lists the images and their users, and records them in the ledger. It leaves out a sandbox
// that does not answer, since nearly all sandboxes of a node have the same image. A container without a
// status casts doubt on the images that it may have mounted.
func (c *Collector) imageUse(ctx context.Context, inv inventory) ([]cri.Image, imageUse, error) {
	status, err := c.runtime.Status(ctx)
	if err != nil {
		return nil, imageUse{}, err
	}
	use, err := c.usesOf(ctx, inv)
	if err != nil {
		return nil, imageUse{}, err
	}
	if status.SandboxImage != "" {
		use.SandboxImages = append(use.SandboxImages, status.SandboxImage)
	}
	asked := c.clock().Boot
	images, err := c.runtime.Images(ctx)
	if err != nil {
		return nil, imageUse{}, err
	}
	use.Absent = c.noteAbsent(images, asked)
	if len(inv.Sandboxes)+len(inv.Containers) == 0 && c.ledger.isForeign(images) {
		return images, use, nil
	}
	needed := use.needed(images)
	c.ledger.note(images, func(id string) bool { _, ok := needed[id]; return ok }, c.clock().Boot)
	return images, use, nil
}

// noteAbsent records and returns for each image when a listing last lacked it.
func (c *Collector) noteAbsent(images []cri.Image, asked time.Duration) map[string]time.Duration {
	u := &c.uses
	u.mu.Lock()
	defer u.mu.Unlock()
	absent := make(map[string]time.Duration, len(images))
	for _, img := range images {
		if at, known := u.absent[img.ID]; known {
			absent[img.ID] = at
		} else {
			absent[img.ID] = u.listed
		}
	}
	u.absent, u.listed = absent, asked
	return absent
}

// absentAt returns the last result of noteAbsent; read only.
func (c *Collector) absentAt() map[string]time.Duration {
	c.uses.mu.Lock()
	defer c.uses.mu.Unlock()
	return c.uses.absent
}

// usesOf returns the images that the containers and sandboxes of a listing need.
func (c *Collector) usesOf(ctx context.Context, inv inventory) (imageUse, error) {
	select {
	case c.uses.asks <- struct{}{}:
		defer func() { <-c.uses.asks }()
	case <-ctx.Done():
		return imageUse{}, fmt.Errorf("another run asks the runtime: %w", ctx.Err())
	}
	details, doubts, err := c.withVolumes(ctx, inv.Containers)
	if err != nil {
		return imageUse{}, err
	}
	pods := make(map[string]string, len(inv.Sandboxes))
	for _, b := range inv.Sandboxes {
		if b.Name != "" {
			pods[b.ID] = b.Namespace + "/" + b.Name
		}
	}
	return imageUse{
		Containers: inv.Containers, Details: details, Doubts: doubts, Pods: pods, SandboxImages: c.sandboxImages(ctx, inv.Sandboxes),
	}, nil
}

// withVolumes returns the details of containers with image volumes, and the containers that may have
// some.
func (c *Collector) withVolumes(ctx context.Context, containers []cri.Container) (details []cri.ContainerDetail, doubts []doubt, err error) {
	now := c.clock().Boot
	known, failed := make(map[string]*cri.ContainerDetail, len(containers)), map[string]failedStatus{}
	hung := 0
	for _, ctr := range containers {
		detail, ok := c.uses.volumes[ctr.ID]
		if !ok {
			f := c.uses.failed[ctr.ID]
			switch {
			case f.err != nil && now < f.after:
			case hung >= maxTimeouts: // the runtime hangs, not one status
				f = failedStatus{errNotAsked, now}
			default:
				detail, err = c.askVolumes(ctx, ctr.ID)
				if errors.Is(err, cri.ErrGone) {
					continue
				}
				if err != nil && (errors.Is(err, cri.ErrUnavailable) || ctx.Err() != nil) {
					return nil, nil, err
				}
				if f = (failedStatus{err, now}); isTimeout(err) {
					f.after = now + askContainerAgain
					hung++
				}
			}
			if f.err != nil {
				failed[ctr.ID] = f
				// A container that has exited never starts again, so it has nothing mounted.
				if ctr.State != cri.Exited {
					doubts = append(doubts, doubt{ctr.ID, ctr.Name, c.seen.since(ctr.ID), f.err})
				}
				continue
			}
		}
		if known[ctr.ID] = detail; detail != nil {
			details = append(details, *detail)
		}
	}
	c.uses.volumes, c.uses.failed = known, failed
	if len(doubts) > 0 && !c.mountsImages(ctx) {
		doubts = nil
	}
	return details, doubts, nil
}

// askVolumes requests a container's details; nil = it has no image volume.
func (c *Collector) askVolumes(ctx context.Context, id string) (*cri.ContainerDetail, error) {
	d, err := c.runtime.ContainerStatus(ctx, id)
	if err != nil || !slices.ContainsFunc(d.Mounts, func(m cri.Mount) bool { return m.Image != "" }) {
		return nil, err
	}
	return &d, nil
}

// mountsImages reports whether the runtime can mount images, as far as its version shows.
func (c *Collector) mountsImages(ctx context.Context) bool {
	v, err := c.runtime.Version(ctx)
	return err != nil || v.MountsImages()
}

// sandboxImages returns the images of the sandboxes that report one.
func (c *Collector) sandboxImages(ctx context.Context, sandboxes []cri.Sandbox) []string {
	now := c.clock().Boot
	known, askAfter := make(map[string]string), make(map[string]time.Duration)
	var all []string
	hung := 0
	for _, b := range sandboxes {
		image, ok := c.uses.sandbox[b.ID]
		if after, wait := c.uses.askAfter[b.ID]; !ok && (wait && now < after || hung >= maxTimeouts) {
			if wait {
				askAfter[b.ID] = after
			}
			continue
		}
		if !ok {
			detail, err := c.runtime.SandboxDetail(ctx, b.ID)
			if errors.Is(err, cri.ErrGone) {
				continue
			}
			if errors.Is(err, cri.ErrUnavailable) || ctx.Err() != nil {
				hung = maxTimeouts // says nothing about this sandbox: ask them all next time
				continue
			}
			if err != nil {
				if isTimeout(err) {
					hung++
				}
				askAfter[b.ID] = now + askSandboxAgain
				continue
			}
			image = detail.Image
		}
		if known[b.ID] = image; image != "" {
			all = append(all, image)
		}
	}
	c.uses.sandbox, c.uses.askAfter = known, askAfter
	return all
}
