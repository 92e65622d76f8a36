package critest

import (
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
)

// image is an image in the store. Server.mu guards it.
type image struct {
	id      string
	tags    []string
	digests []string
	size    int64
	pinned  bool

	artifact bool
}

// AddImage adds an image and returns its id.
func (s *Server) AddImage(spec ImageSpec) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addImage(spec).id
}

func (s *Server) addImage(spec ImageSpec) *image {
	s.added.images++
	// CRI-O combines each tag's repository with the image's digest, whatever the image's origin.
	if named := !spec.Imported || s.traits.crio; len(spec.Digests) == 0 && len(spec.Tags) > 0 && named {
		r := cri.ParseReference(spec.Tags[0])
		spec.Digests = []string{r.Registry + "/" + r.Repository + "@sha256:" + digest("manifest", s.added.images)}
	}
	if spec.Artifact {
		spec.ID = cri.TrimID(cri.ParseReference(spec.Digests[0]).Digest)
	}
	if spec.ID == "" {
		spec.ID = digest("image", s.added.images)
		if !s.traits.crio {
			spec.ID = "sha256:" + spec.ID
		}
	}
	setDefault(&spec.Size, 10<<20)
	img := &image{
		id: spec.ID, tags: slices.Clone(spec.Tags), digests: slices.Clone(spec.Digests),
		size: spec.Size, pinned: spec.Pinned, artifact: spec.Artifact,
	}
	s.images = append(s.images, img)
	return img
}

// Tag moves a tag to an image from the image that has it.
func (s *Server) Tag(id, tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, img := range s.images {
		img.tags = slices.DeleteFunc(img.tags, func(t string) bool { return t == tag })
	}
	if img := s.image(id); img != nil {
		img.tags = append(img.tags, tag)
	}
}

// image finds an image by its id, tag or digest; nil = not found.
func (s *Server) image(ref string) *image {
	if ref == "" {
		return nil
	}
	id := cri.TrimID(ref)
	if i := slices.IndexFunc(s.images, func(img *image) bool { return cri.TrimID(img.id) == id }); i >= 0 {
		return s.images[i]
	}
	named := sameName(ref)
	for _, img := range s.images {
		if slices.Contains(img.digests, ref) || slices.ContainsFunc(img.tags, named) {
			return img
		}
	}
	return nil
}

// imageFor finds an image, or adds it under this name.
func (s *Server) imageFor(ref string) *image {
	if img := s.image(ref); img != nil {
		return img
	}
	return s.addImage(ImageSpec{Tags: []string{ref}})
}

func sameName(ref string) func(string) bool {
	name := cri.ParseReference(ref).String()
	return func(tag string) bool { return cri.ParseReference(tag).String() == name }
}

func (s *Server) removeImage(img *image) {
	s.images = slices.DeleteFunc(s.images, func(other *image) bool { return other == img })
}

// used reports whether the store protects an image. CRI-O's store protects the image of any container,
// and the pause image while there is any sandbox.
func (s *Server) used(img *image) bool {
	for _, c := range s.containers {
		if c.image == img {
			return true
		}
	}
	return len(s.pods) > 0 && slices.Contains(img.tags, pauseImage)
}

// message returns the image in the form of ListImages.
func (img *image) message() *runtimeapi.Image {
	m := &runtimeapi.Image{
		Id: img.id, RepoTags: slices.Clone(img.tags), RepoDigests: slices.Clone(img.digests),
		Size: uint64(img.size), Pinned: img.pinned,
	}
	if len(img.tags) > 0 {
		m.Spec = &runtimeapi.ImageSpec{Image: img.tags[0]}
	}
	return m
}

// listRef returns the image_ref of a container in a listing.
func (c *container) listRef() string {
	if c.pod.server.traits.crio {
		return c.image.digestOrID()
	}
	return c.image.id
}

func (img *image) digestOrID() string {
	if len(img.digests) > 0 {
		return img.digests[0]
	}
	return img.id
}

// statusImage returns the image in a container's status: the image's first tag on containerd, the
// requested name on CRI-O.
func (c *container) statusImage() string {
	switch {
	case c.pod.server.traits.crio:
		return c.spec.Image
	case len(c.image.tags) > 0:
		return c.image.tags[0]
	default:
		return c.image.id
	}
}

// isID reports whether ref is an id, complete or a prefix, not a name.
func isID(ref string) bool {
	id := cri.TrimID(ref)
	return len(id) >= 12 && strings.Trim(id, "0123456789abcdef") == ""
}
