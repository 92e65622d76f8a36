package reclaim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
)

// askSandboxAgain is how long a sandbox whose details could not be had is not
// asked for again: its shim hangs.
const askSandboxAgain = 10 * time.Minute

// useCache keeps what a listing does not tell of containers and sandboxes, and
// what never changes of them.
type useCache struct {
	mu       sync.Mutex
	volumes  map[string]*cri.ContainerDetail // by container; nil = it has no image volume
	sandbox  map[string]string               // image, by sandbox
	askAfter map[string]time.Duration        // by sandbox
}

// imageUse lists the images and all that uses them, and takes it into the
// ledger. Without the details of every container nothing is known of image
// volumes, so that it fails; a sandbox that does not answer is left out, since
// nearly all of a node's sandboxes have the same image.
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
	images, err := c.runtime.Images(ctx)
	if err != nil {
		return nil, imageUse{}, err
	}
	needed := use.needed(images)
	c.ledger.note(images, func(id string) bool { _, ok := needed[id]; return ok }, c.clock().Boot)
	return images, use, nil
}

// usesOf lists what the containers and sandboxes of a listing need of images.
func (c *Collector) usesOf(ctx context.Context, inv inventory) (imageUse, error) {
	details, err := c.withVolumes(ctx, inv.Containers)
	if err != nil {
		return imageUse{}, err
	}
	return imageUse{Containers: inv.Containers, Details: details, SandboxImages: c.sandboxImages(ctx, inv.Sandboxes)}, nil
}

// withVolumes gives the details of the containers that have image volumes.
func (c *Collector) withVolumes(ctx context.Context, containers []cri.Container) ([]cri.ContainerDetail, error) {
	c.uses.mu.Lock()
	defer c.uses.mu.Unlock()
	known := make(map[string]*cri.ContainerDetail, len(containers))
	var details []cri.ContainerDetail
	for _, ctr := range containers {
		detail, ok := c.uses.volumes[ctr.ID]
		if !ok {
			d, err := c.runtime.ContainerStatus(ctx, ctr.ID)
			if errors.Is(err, cri.ErrGone) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(d.Mounts, func(m cri.Mount) bool { return m.Image != "" }) {
				detail = &d
			}
		}
		if known[ctr.ID] = detail; detail != nil {
			details = append(details, *detail)
		}
	}
	c.uses.volumes = known
	return details, nil
}

// sandboxImages lists the images of the sandboxes that tell.
func (c *Collector) sandboxImages(ctx context.Context, sandboxes []cri.Sandbox) []string {
	c.uses.mu.Lock()
	defer c.uses.mu.Unlock()
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
			if err != nil {
				hung++
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
