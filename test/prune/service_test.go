package prune_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// While the service runs, it does the pruning. Several prunes at once, next to commands that read
// its state, remove each image once, none fails, the ledger is intact, and the history records
// them.
func TestPruneBesideTheService(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	service, client := n.Start(), n.Client()
	defer func() {
		if !strings.Contains(service.Logged(), "action=prune") {
			t.Errorf("the service did not prune:\n%s", service.Logged())
		}
	}()
	n.Within(harness.Patience, "the runtime to answer", func() bool {
		st, err := client.Status(context.Background())
		return err == nil && st.Runtime.Up
	})
	var specs []lab.ImageSpec
	var want []string
	for i := range 6 {
		specs = append(specs, lab.ImageSpec{Name: fmt.Sprintf("registry.local/beside-%d:1", i), ExtraBytes: mib + int64(i), RepoDigest: true})
		want = append(want, specs[i].Name)
	}
	if _, err := n.lab.ImportImages(context.Background(), specs...); err != nil {
		t.Fatal(err)
	}
	if dry := n.prune("--dry-run"); !slices.Equal(dry, want) {
		t.Errorf("the dry run names %v, want %v", dry, want)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var removed []string
	for range 3 {
		wg.Go(func() {
			names := n.prune()
			mu.Lock()
			defer mu.Unlock()
			removed = append(removed, names...)
		})
		wg.Go(func() {
			harness.Ask[struct {
				Images []reclaim.Verdict `json:"images"`
			}](n.Node, "images")
		})
	}
	wg.Wait()
	if slices.Sort(removed); !slices.Equal(removed, want) {
		t.Errorf("removed %v, want %v", removed, want)
	}
	if left, err := filepath.Glob(filepath.Join(n.Dir, "images.json.*")); err != nil || slices.ContainsFunc(left, func(path string) bool {
		return strings.HasSuffix(path, ".damaged") || strings.HasSuffix(path, ".tmp")
	}) {
		t.Errorf("beside the ledger: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(n.Dir, "images.json")); err != nil {
		t.Error(err)
	}
	n.Within(harness.Patience, "the prune to be in the history", func() bool {
		passes, err := client.History(context.Background(), 0)
		count := 0
		for _, p := range passes {
			for i := range p.Reclaimed {
				count += p.Reclaimed[i].Removed()
			}
		}
		return err == nil && count == len(want)
	})
}
