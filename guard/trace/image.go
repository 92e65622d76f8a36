package trace

import (
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/reclaim"
)

// ImagesOf returns the facts about the images of a node on which it depends whether they can be removed.
func ImagesOf(images []cri.Image, containers []cri.Container) []Image {
	used := cri.InUse(images, cri.ImageNeeds(containers, nil, nil))
	out := make([]Image, 0, len(images))
	for _, img := range images {
		t := Image{ID: img.ID, Size: Quantity(max(img.Size, 0)), Pinned: img.Pinned}
		_, t.InUse = used[img.ID]
		if len(img.Tags) > 0 {
			t.Name = img.Tags[0]
		}
		if reclaim.Unpullable(img) != "" {
			t.Repullable = new(false)
		}
		out = append(out, t)
	}
	return out
}
