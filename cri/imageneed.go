package cri

import (
	"cmp"
	"slices"
	"sort"
)

// ImageNeed is a use of an image, under one of the image's names.
type ImageNeed struct {
	Ref string // an id, a tag or a digest, complete or shortened
	By  string // human-readable: "container 0123456789abc", "sandbox image"
	// Sandbox is the ID of the container's sandbox; "" = not for a container.
	Sandbox string
}

// ImageNeeds returns the images that containers (running or exited, as listed) and sandboxes (by the
// references of their pause images) need. The details are needed only for image volumes.
func ImageNeeds(containers []Container, details []ContainerDetail, sandboxImages []string) []ImageNeed {
	needs := make([]ImageNeed, 0, 2*len(containers)+len(sandboxImages))
	add := func(by, sandbox string, refs ...string) {
		for i, ref := range refs {
			if ref != "" && !slices.Contains(refs[:i], ref) {
				needs = append(needs, ImageNeed{Ref: ref, By: by, Sandbox: sandbox})
			}
		}
	}
	for i := range containers {
		c := &containers[i]
		add("container "+short(c.ID), c.SandboxID, c.ImageID, c.ImageRef, c.Image, c.UserImage)
	}
	for i := range details {
		d := &details[i]
		// Image is left out: containerd returns the image's first tag there, which may name another
		// image by now. The listing has the requested name.
		add("container "+short(d.ID), d.SandboxID, d.ImageID, d.ImageRef, d.UserImage)
		for _, m := range d.Mounts {
			add("image volume of container "+short(d.ID), d.SandboxID, m.Image)
		}
	}
	add("sandbox image", "", sandboxImages...)
	return needs
}

// InUse returns the images in use, by Image.ID, with one need each. If a name may mean several images,
// all of them count as in use: keeping one image too many costs space, removing one too many costs a
// pod.
func InUse(images []Image, needs []ImageNeed) map[string]ImageNeed {
	m := NewImageMatcher(images)
	used := make(map[string]ImageNeed)
	for _, n := range needs {
		for _, i := range m.Match(n.Ref) {
			if _, ok := used[images[i].ID]; !ok {
				used[images[i].ID] = n
			}
		}
	}
	return used
}

// ImageMatcher finds images by any name that a runtime, a pod or a person uses for them: id (with or
// without "sha256:", complete or a prefix), tag or digest.
type ImageMatcher struct {
	hex   map[string][]int // complete ids and the hex part of digests
	names map[string][]int // tags, as Reference.String returns them
	ids   []hexIndex       // sorted, for prefixes of ids
}

type hexIndex struct {
	hex   string
	image int
}

// NewImageMatcher returns a matcher for images. Match returns positions in images.
func NewImageMatcher(images []Image) *ImageMatcher {
	m := &ImageMatcher{
		hex:   make(map[string][]int, 2*len(images)),
		names: make(map[string][]int, len(images)),
		ids:   make([]hexIndex, 0, len(images)),
	}
	for i := range images {
		id := TrimID(images[i].ID)
		m.hex[id] = append(m.hex[id], i)
		m.ids = append(m.ids, hexIndex{id, i})
		for _, d := range images[i].Digests {
			if hex := TrimID(ParseReference(d).Digest); hex != "" && !slices.Contains(m.hex[hex], i) {
				m.hex[hex] = append(m.hex[hex], i)
			}
		}
		for _, t := range images[i].Tags {
			name := ParseReference(t).String()
			if !slices.Contains(m.names[name], i) {
				m.names[name] = append(m.names[name], i)
			}
		}
	}
	slices.SortFunc(m.ids, func(a, b hexIndex) int {
		return cmp.Or(cmp.Compare(a.hex, b.hex), cmp.Compare(a.image, b.image))
	})
	return m
}

// Match returns the ascending positions of the images that ref may mean. It ignores the repository
// before a digest: the same digest is the same image.
func (m *ImageMatcher) Match(ref string) []int {
	if ref == "" {
		return nil
	}
	var found []int
	if id := TrimID(ref); isHex(id) {
		found = append(found, m.hex[id]...)
		from := sort.Search(len(m.ids), func(i int) bool { return m.ids[i].hex >= id })
		for ; from < len(m.ids) && len(m.ids[from].hex) >= len(id) && m.ids[from].hex[:len(id)] == id; from++ {
			found = append(found, m.ids[from].image)
		}
	}
	r := ParseReference(ref)
	if r.Digest != "" {
		found = append(found, m.hex[TrimID(r.Digest)]...)
	}
	if len(found) == 0 || r.Digest == "" {
		found = append(found, m.byName(r)...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// byName finds images by tag and ignores the digest.
func (m *ImageMatcher) byName(r Reference) []int {
	r.Digest = ""
	if r.Tag == "" {
		return nil
	}
	found := m.names[r.String()]
	if r.Short {
		local := r
		local.Registry, local.Repository = localRegistry, trimOfficial(r.Repository)
		found = append(slices.Clone(found), m.names[local.String()]...)
	}
	return found
}

// trimOfficial removes the prefix that ParseReference adds to a one-word repository.
func trimOfficial(repository string) string {
	if len(repository) > len(officialPrefix) && repository[:len(officialPrefix)] == officialPrefix {
		return repository[len(officialPrefix):]
	}
	return repository
}
