package critest

import (
	"errors"
	"path"
	"slices"
	"time"

	"github.com/criguard/criguard/cri"
)

// images: an image in use is recognised, an unused one can be removed by its id.
func (c *contract) images() {
	ref := "registry.local/contract-" + c.unique() + ":1"
	c.target.AddImage(c.T, ref)
	pod := c.runPod(ContainerSpec{Name: "running"}, ContainerSpec{Name: "exited", State: cri.Exited})

	images := c.listImages()
	unused := c.tagged(images, ref)
	if unused.ID == "" {
		c.Fatalf("%s is not listed", ref)
	}
	if unused.Size <= 0 {
		c.Errorf("size = %d", unused.Size)
	}
	detail, err := c.client.SandboxDetail(c.Context(), pod.ID)
	c.check(err)
	containers, err := c.client.Containers(c.Context())
	c.check(err)
	listed := ids(containers, containerID)
	for _, ctr := range pod.Containers {
		used := cri.InUse(images, cri.ImageNeeds([]cri.Container{listed[ctr.ID]}, nil, nil))
		if len(used) != 1 {
			c.Errorf("%s uses %v, want one image", ctr.Name, used)
		}
	}
	used := cri.InUse(images, cri.ImageNeeds(containers, nil, []string{detail.Image}))
	if need, ok := used[unused.ID]; ok {
		c.Errorf("the unused image is needed by %+v", need)
	}
	if len(cri.InUse(images, cri.ImageNeeds(nil, nil, []string{detail.Image}))) == 0 {
		c.Errorf("the sandbox image %q matches no image", detail.Image)
	}

	c.check(c.client.RemoveImage(c.Context(), unused.ID))
	images = c.listImages()
	if slices.ContainsFunc(images, func(i cri.Image) bool { return i.ID == unused.ID || slices.Contains(i.Tags, ref) }) {
		c.Error("a removed image is listed")
	}
	c.check(c.client.RemoveImage(c.Context(), unused.ID)) // again
	left := ids(images, imageID)
	for id := range used {
		if _, ok := left[id]; !ok {
			c.Errorf("image %s, which is in use, went too", id)
		}
	}
}

func (c *contract) listImages() []cri.Image {
	c.Helper()
	images, err := c.client.Images(c.Context())
	c.check(err)
	return images
}

// tagged returns the image with this tag.
func (c *contract) tagged(images []cri.Image, ref string) cri.Image {
	for _, i := range images {
		if slices.Contains(i.Tags, ref) {
			return i
		}
	}
	return cri.Image{}
}

func (c *contract) filesystems() {
	images, containers, err := c.client.ImageFilesystems(c.Context())
	c.check(err)
	if len(images) == 0 {
		c.Fatal("no image filesystem")
	}
	for _, fs := range append(images, containers...) {
		if !path.IsAbs(fs.Mountpoint) {
			c.Errorf("mount point = %q", fs.Mountpoint)
		}
	}
	pod := c.runPod(ContainerSpec{Name: "app"})
	layer, err := c.client.WritableLayer(c.Context(), pod.Containers[0].ID)
	c.check(err)
	if layer.Known == layer.At.IsZero() || layer.UsedBytes < 0 || layer.InodesUsed < 0 {
		c.Errorf("writable layer = %+v", layer)
	}
	c.check(c.client.StopContainer(c.Context(), pod.Containers[0].ID, 0))
	if layer, err = c.client.ExitedLayer(c.Context(), pod.Containers[0].ID); err != nil || layer.Known == layer.At.IsZero() {
		c.Errorf("writable layer when it has exited = %+v, %v", layer, err)
	}
}

// events: the runtime sends events, or reports at once that it does not support them. The check skips a
// runtime on which it would take events away from a kubelet.
func (c *contract) events() {
	if _, minor, _ := c.version.Release(); !c.version.EventsShareable() && minor > 6 {
		return
	}
	pod := c.runPod(ContainerSpec{Name: "a"}, ContainerSpec{Name: "b"}, ContainerSpec{Name: "c"}, ContainerSpec{Name: "d"})
	seen := async(func() error { return c.awaitEvent(pod) })
	if !c.version.EventsShareable() {
		select {
		case err := <-seen:
			if !errors.Is(err, cri.ErrUnsupported) {
				c.Errorf("events: %v, want ErrUnsupported", err)
			}
		case <-time.After(hangs):
			c.Error("a runtime without events lets a subscriber wait")
		}
		return
	}
	// Nothing says that a subscription has begun: a stop before that has no event, a later one has.
	wait := 500 * time.Millisecond
	for _, ctr := range pod.Containers {
		c.check(c.client.StopContainer(c.Context(), ctr.ID, 0))
		select {
		case err := <-seen:
			if !errors.Is(err, cri.ErrUnsupported) { // they may be switched off
				c.check(err)
			}
			return
		case <-time.After(wait):
			wait *= 4
		}
	}
	c.Error("no event arrived")
}

// awaitEvent watches the events until a container of the pod has changed.
func (c *contract) awaitEvent(pod Pod) error {
	for changed, err := range c.client.Events(c.Context()) {
		if err != nil {
			return err
		}
		if slices.ContainsFunc(pod.Containers, func(ctr Container) bool { return ctr.ID == changed }) {
			return nil
		}
	}
	return errors.New("the stream ended without an error")
}
