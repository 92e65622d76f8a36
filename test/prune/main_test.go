package prune_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// node is a lab with a small image filesystem, and criguard's files for it.
type node struct {
	*harness.Node
	lab    *lab.Lab
	client *cri.Client
	airgap string
}

const mib = 1 << 20

func newNode(t *testing.T, runtime string) *node {
	t.Helper()
	l := harness.StartLab(t, lab.Options{Containerd: runtime, ImageFSBytes: 1 << 30})
	n := &node{Node: &harness.Node{T: t, Dir: t.TempDir()}, lab: l, airgap: t.TempDir()}
	var err error
	if n.client, err = cri.Dial(l.Endpoint(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.client.Close() })
	n.configure("15%", "5%")
	return n
}

func (n *node) configure(threshold, reclaim string) {
	n.Helper()
	n.Configure(n.lab.Config() + fmt.Sprintf(`
[eviction.hard]
"memory.available" = "0%%"
"nodefs.available" = "0%%"
"nodefs.inodesFree" = "0%%"
"imagefs.available" = %q
[eviction.minimum_reclaim]
"imagefs.available" = %q
[images]
min_age = "0s"
unused_grace = "0s"
hold_after_runtime_restart = "0s"
airgap_dirs = [%q]
[history]
dir = %q
`, threshold, reclaim, n.airgap, n.Dir))
}

// present returns the images by their first names.
func (n *node) present() map[string]cri.Image {
	n.Helper()
	images, err := n.client.Images(context.Background())
	if err != nil {
		n.Fatal(err)
	}
	by := map[string]cri.Image{}
	for _, img := range images {
		for _, tag := range img.Tags {
			by[tag] = img
		}
	}
	return by
}
