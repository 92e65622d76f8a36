package prune_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// A dry run and the following run list the same items, and every kept image has a reason.
func TestDryRunIsTheRunAfterIt(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	ctx := context.Background()
	var specs []lab.ImageSpec
	for i := range 6 {
		specs = append(specs, lab.ImageSpec{
			Name: fmt.Sprintf("registry.local/dry-%d:1", i), ExtraBytes: mib + int64(i), RepoDigest: i != 5, Pinned: i == 4,
		})
	}
	if _, err := n.lab.ImportImages(ctx, specs...); err != nil {
		t.Fatal(err)
	}
	if _, err := n.lab.RunPod(ctx, lab.PodSpec{Name: "user", Containers: []lab.ContainerSpec{{Name: "main", Image: specs[0].Name}}}); err != nil {
		t.Fatal(err)
	}
	list := harness.Ask[struct {
		APIVersion string            `json:"apiVersion"`
		Images     []reclaim.Verdict `json:"images"`
	}](n.Node, "images")
	if list.APIVersion == "" || len(list.Images) < len(specs) {
		t.Fatalf("criguard images: %+v", list)
	}
	for _, v := range list.Images {
		if v.Why == "" {
			t.Errorf("image %s has no reason", v.Name)
		}
		if v.Name == specs[0].Name && !strings.HasSuffix(v.Why, " of default/user") {
			t.Errorf("an image in use does not name its pod: %s", v.Why)
		}
	}
	dry, wet := n.prune("--dry-run"), n.prune()
	if want := []string{specs[1].Name, specs[2].Name, specs[3].Name}; !slices.Equal(dry, want) {
		t.Errorf("the dry run names %v, want %v", dry, want)
	}
	if !slices.Equal(dry, wet) {
		t.Errorf("the dry run named %v, the run removed %v", dry, wet)
	}
	if again := n.prune(); len(again) != 0 {
		t.Errorf("a second run removed %v", again)
	}
}

// prune runs criguard prune and returns the sorted names of the removed items.
func (n *node) prune(flags ...string) []string {
	n.Helper()
	out := harness.Ask[struct {
		Steps []reclaim.Report `json:"steps"`
	}](n.Node, append([]string{"prune", "--images"}, flags...)...)
	var names []string
	for _, r := range out.Steps {
		for _, it := range r.Removed {
			names = append(names, it.Name)
		}
	}
	slices.Sort(names)
	return names
}
