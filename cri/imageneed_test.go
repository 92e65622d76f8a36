package cri_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

const (
	appHex   = "1111111111111111111111111111111111111111111111111111111111111111"
	oldHex   = "1122222222222222222222222222222222222222222222222222222222222222"
	pauseHex = "3333333333333333333333333333333333333333333333333333333333333333"
	appSum   = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
)

// store returns images in the form of either runtime.
func store(prefix string) []cri.Image {
	return []cri.Image{
		{ID: prefix + appHex, Tags: []string{"docker.io/library/app:2", "docker.io/library/app:latest"}, Digests: []string{"docker.io/library/app@sha256:" + appSum}},
		{ID: prefix + oldHex, Tags: []string{"registry.local:5000/old:1"}},
		{ID: prefix + pauseHex, Tags: []string{"docker.io/rancher/pause:3.6"}},
		{ID: prefix + strings.Repeat("4", 64)}, // untagged
		{ID: prefix + strings.Repeat("5", 64), Tags: []string{"localhost/built:latest"}},
		{ID: prefix + strings.Repeat("6", 64), Tags: []string{"quay.io/library/app:2"}},
	}
}

func TestMatch(t *testing.T) {
	for _, prefix := range []string{"sha256:", ""} {
		m := cri.NewImageMatcher(store(prefix))
		for _, tc := range []struct {
			ref  string
			want []int
		}{
			{"sha256:" + appHex, []int{0}},
			{appHex, []int{0}},
			{appHex[:12], []int{0}},
			{"sha256:" + appHex[:12], []int{0}},
			{"11", nil},          // too short for an id
			{"1111", []int{0}},   // a prefix of one id
			{"112", []int{1}},    // a prefix of another
			{"111112", nil},      // a prefix of no id
			{appHex + "00", nil}, // longer than any
			{"app", []int{0}},    // docker.io/library/app:latest
			{"app:2", []int{0}},  // not the one of quay.io
			{"app:3", nil},       // no such tag
			{"docker.io/app:2", []int{0}},
			{"index.docker.io/library/app:2", []int{0}},
			{"quay.io/library/app:2", []int{5}},
			{"app@sha256:" + appSum, []int{0}},
			{"mirror.local/any/name@sha256:" + appSum, []int{0}}, // the same digest is the same image
			{"app:2@sha256:" + appSum, []int{0}},
			{"app:2@sha256:" + pauseHex, []int{2}},                // the digest decides
			{"app:2@sha256:" + strings.Repeat("e", 64), []int{0}}, // unless no image has it
			{"app@sha256:" + strings.Repeat("e", 64), nil},
			{"docker-pullable://app@sha256:" + appSum, []int{0}},
			{"registry.local:5000/old:1", []int{1}},
			{"registry.local:5000/old", nil},
			{"index.docker.io/rancher/pause:3.6", []int{2}},
			{"built", []int{4}}, // short names may mean images built here
			{"built:latest", []int{4}},
			{strings.Repeat("4", 64), []int{3}},
			{"", nil},
		} {
			if got := m.Match(tc.ref); !slices.Equal(got, tc.want) {
				t.Errorf("%q: Match(%q) = %v, want %v", prefix, tc.ref, got, tc.want)
			}
		}
	}
}

func TestMatchTakesEveryImageANameMayMean(t *testing.T) {
	images := []cri.Image{
		{ID: "sha256:cafe" + appHex[4:], Tags: []string{"x:1"}},
		{ID: "sha256:0000" + appHex[4:], Tags: []string{"docker.io/library/cafe:latest", "y:1"}},
		{ID: "sha256:9999" + appHex[4:], Tags: []string{"y:1"}}, // two images with one tag: a bug of the runtime
	}
	m := cri.NewImageMatcher(images)
	if got := m.Match("cafe"); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("a name that is hexadecimal = %v", got)
	}
	if got := m.Match("y:1"); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("a tag twice = %v", got)
	}
}

func TestImageNeeds(t *testing.T) {
	containers := []cri.Container{
		{ID: "c1", Image: "app:2", ImageID: "id", ImageRef: "id", UserImage: "app:2"},
		{ID: "c2", Image: "app:2"},
	}
	details := []cri.ContainerDetail{{
		Container: cri.Container{ID: "c2", Image: "app:1", ImageRef: "app@sha256:1"},
		Mounts:    []cri.Mount{{HostPath: "/etc"}, {Image: "data:1"}},
	}}
	got := cri.ImageNeeds(containers, details, []string{"pause:1", "", "pause:1"})
	want := []cri.ImageNeed{
		{Ref: "id", By: "container c1"}, {Ref: "app:2", By: "container c1"},
		{Ref: "app:2", By: "container c2"}, {Ref: "app@sha256:1", By: "container c2"},
		{Ref: "data:1", By: "image volume of container c2"},
		{Ref: "pause:1", By: "sandbox image"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("needs = %v\nwant    %v", got, want)
	}
}

// TestInUse checks each runtime's form of references. The images are in use by a running and an exited
// container, under a tag that moved on, without a tag, as an image volume and as a sandbox image.
func TestInUse(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		running := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/running:1"}})
		dead := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/dead:1"}, Imported: true})
		moved := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/moved:1"}})
		untagged := s.AddImage(critest.ImageSpec{})
		volume := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/data:1"}})
		unused := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/unused:1"}})
		pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{
			{Image: "registry.local/running:1", Mounts: []cri.Mount{{ContainerPath: "/data", Image: "registry.local/data:1"}}},
			{Image: "registry.local/dead:1", State: cri.Exited},
			{Image: "registry.local/moved:1"},
			{Image: untagged},
		}})
		next := s.AddImage(critest.ImageSpec{})
		s.Tag(next, "registry.local/moved:1")

		images, err := c.Images(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		containers, err := c.Containers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var details []cri.ContainerDetail
		for _, ctr := range pod.Containers {
			d, err := c.ContainerDetail(t.Context(), ctr.ID)
			if err != nil {
				t.Fatal(err)
			}
			details = append(details, d)
		}
		sandbox, err := c.SandboxDetail(t.Context(), pod.ID)
		if err != nil {
			t.Fatal(err)
		}
		used := cri.InUse(images, cri.ImageNeeds(containers, details, []string{sandbox.Image}))
		for name, id := range map[string]string{"running": running, "dead": dead, "moved": moved, "untagged": untagged, "volume": volume} {
			if _, ok := used[id]; !ok {
				t.Errorf("%s is not in use", name)
			}
		}
		if need, ok := used[unused]; ok {
			t.Errorf("unused is needed by %+v", need)
		}
		// The requested name counts too, so the image that now has the tag is kept.
		if want := 7; len(used) != want {
			t.Errorf("%d images in use, want %d: %v", len(used), want, slices.Collect(maps.Keys(used)))
		}
	})
}

func TestImagesKeepTheirIDs(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		id := s.AddImage(critest.ImageSpec{Tags: []string{"registry.local/a:1", "registry.local/a:2"}})
		if err := c.RemoveImage(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if s.Has(id) {
			t.Error("the image is still there")
		}
		if got := s.Calls("RemoveImage")[0].ID; got != id {
			t.Errorf("asked for %q, want %q", got, id)
		}
		if cri.TrimID(id) == id == strings.HasPrefix(id, "sha256:") {
			t.Errorf("TrimID(%q) = %q", id, cri.TrimID(id))
		}
	})
}

func BenchmarkInUse(b *testing.B) {
	var images []cri.Image
	for i := range 1000 {
		images = append(images, cri.Image{
			ID: fmt.Sprintf("sha256:%064x", i*7919), Tags: []string{fmt.Sprintf("registry.local/app-%d:1", i)},
			Digests: []string{fmt.Sprintf("registry.local/app-%d@sha256:%064x", i, i*104729)},
		})
	}
	var containers []cri.Container
	for i := range 1000 {
		containers = append(containers, cri.Container{ID: fmt.Sprint(i), Image: images[i].Tags[0], ImageRef: images[i].ID})
	}
	for b.Loop() {
		cri.InUse(images, cri.ImageNeeds(containers, nil, nil))
	}
}
