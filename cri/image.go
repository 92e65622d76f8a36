package cri

import (
	"context"
	"math"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image is an image in the runtime's store.
type Image struct {
	ID   string   // as the runtime names it: "sha256:<hex>" (containerd) or bare hex (CRI-O)
	Tags []string // "registry/repository:tag"; none for a re-tagged image, which may still be in use
	// Digests are "registry/repository@sha256:<hex>". containerd has none for an imported
	// image (but k3s names one); CRI-O combines every tag's repository with the image's
	// digest, wherever the image is from.
	Digests []string
	// Size in bytes; 0 = not told. containerd counts the compressed blobs, about a
	// third of what a removal frees; CRI-O the unpacked layers. Both count a shared
	// layer in every image that has it.
	Size int64
	// Pinned is a request to keep the image. containerd itself does not heed it.
	Pinned    bool
	UserImage string // the name it was asked for by; "" = not told
}

// Images lists all images.
func (c *Client) Images(ctx context.Context) ([]Image, error) {
	resp, err := call(ctx, c.timeout, "list images", c.images.ListImages,
		&runtimeapi.ListImagesRequest{Filter: &runtimeapi.ImageFilter{}})
	if err != nil {
		return nil, err
	}
	out := make([]Image, 0, len(resp.GetImages()))
	for _, m := range resp.GetImages() {
		if m.GetId() != "" {
			out = append(out, imageOf(m))
		}
	}
	return out, nil
}

// RemovalRef is what RemoveImage takes an image by: its id, with which all its names go. An
// OCI artifact CRI-O finds by a name alone; its id is the digest in that name, which an
// image's never is. By a tag, an image of the same name would lose it.
func (i *Image) RemovalRef() string {
	for _, d := range i.Digests {
		if TrimID(ParseReference(d).Digest) == i.ID {
			return d
		}
	}
	return i.ID
}

// RemoveImage removes an image with all its names. Give Image.RemovalRef: by another name
// CRI-O removes that name alone. containerd refuses nothing, not even an image in
// use; CRI-O may answer well and have done nothing. So list again, and believe the
// list alone. The deadline is long because containerd collects all its garbage
// before it answers, and strands records when it is interrupted.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	name := clean(ref)
	if id := TrimID(ref); isHex(id) {
		name = short(id)
	}
	_, err := call(ctx, max(c.timeout, removeImageTimeout), "remove image "+name, c.images.RemoveImage,
		&runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return unlessGone(err)
}

func imageOf(m *runtimeapi.Image) Image {
	img := Image{
		ID:        m.GetId(),
		Tags:      m.GetRepoTags(),
		Digests:   m.GetRepoDigests(),
		Pinned:    m.GetPinned(),
		UserImage: m.GetSpec().GetUserSpecifiedImage(),
	}
	if size := m.GetSize(); size <= math.MaxInt64 {
		img.Size = int64(size)
	}
	return img
}
