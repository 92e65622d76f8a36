package cri

import (
	"context"
	"math"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image is an image in the runtime's store.
type Image struct {
	ID   string   // in the runtime's form: "sha256:<hex>" (containerd) or bare hex (CRI-O)
	Tags []string // "registry/repository:tag"; a re-tagged image has no tags and may still be in use
	// Digests are "registry/repository@sha256:<hex>". On containerd, an imported image lacks them (k3s
	// adds one). CRI-O combines each tag's repository with the image's digest, whatever the image's
	// origin.
	Digests []string
	// Size is in bytes; 0 = not reported. containerd counts the compressed blobs, about a third of the
	// space that a removal frees. CRI-O counts the unpacked layers. Both count a shared layer in every
	// image that has it.
	Size int64
	// Pinned is a request to keep the image. containerd itself ignores it.
	Pinned    bool
	UserImage string // the name it was requested by; "" = not reported
}

// Images lists all images.
func (c *Client) Images(ctx context.Context) ([]Image, error) {
	resp, err := call(ctx, max(c.timeout, listImagesTimeout), "list images", c.images.ListImages,
		&runtimeapi.ListImagesRequest{Filter: &runtimeapi.ImageFilter{}})
	if err != nil {
		return nil, err
	}
	return listed(resp.GetImages(), imageOf), nil
}

// RemovalRef returns the reference to give to RemoveImage. For an image it is the id, which removes all
// its names. CRI-O finds an OCI artifact only by name, so for one it is the name whose digest is the
// artifact's id; an image's id never is. A tag would not do: an image of the same name would lose it.
func (i *Image) RemovalRef() string {
	for _, d := range i.Digests {
		if TrimID(ParseReference(d).Digest) == i.ID {
			return d
		}
	}
	return i.ID
}

// RemoveImage removes an image with all its names if ref is Image.RemovalRef. CRI-O removes only the
// given name otherwise. containerd does not even refuse to remove an image in use, and CRI-O may report
// success without doing anything, so list again and trust only the list. The deadline is long because
// containerd collects all its garbage before it answers; an interrupted removal leaves orphaned records
// behind.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	name := clean(ref)
	if id := TrimID(ref); isHex(id) {
		name = short(id)
	}
	_, err := call(ctx, max(c.timeout, removeImageTimeout), "remove image "+name, c.images.RemoveImage,
		&runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return unlessGone(err)
}

// named removes "<none>:<none>" and "<none>@<none>", which Docker lists for an image without names (before version 1.43 of its
// API).
func named(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "<none>") })
}

func imageOf(m *runtimeapi.Image) Image {
	img := Image{
		ID:        m.GetId(),
		Tags:      named(m.GetRepoTags()),
		Digests:   named(m.GetRepoDigests()),
		Pinned:    m.GetPinned(),
		UserImage: m.GetSpec().GetUserSpecifiedImage(),
	}
	if size := m.GetSize(); size <= math.MaxInt64 {
		img.Size = int64(size)
	}
	return img
}
