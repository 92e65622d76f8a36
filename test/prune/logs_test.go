package prune_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// Logs of a pod that is gone are removed, but not with a filesystem that is mounted in them: its content belongs
// to others.
func TestLogsWithAMountStay(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	if _, err := n.lab.RunPod(context.Background(), lab.PodSpec{Name: "user"}); err != nil { // its logs show that they are this runtime's
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		for ; filepath.Dir(path) != n.lab.PodLogDir(); path = filepath.Dir(path) {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	plain, mounted := filepath.Join(n.lab.PodLogDir(), "default_plain_u1"), filepath.Join(n.lab.PodLogDir(), "default_mounted_u2")
	for _, dir := range []string{plain, mounted} {
		if err := os.MkdirAll(filepath.Join(dir, "main"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("criguard-lab", filepath.Join(mounted, "main"), "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(filepath.Join(mounted, "main"), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	precious := filepath.Join(mounted, "main", "precious")
	write(filepath.Join(plain, "main", "0.log"))
	write(precious)
	var removed, kept []string
	for _, r := range harness.Ask[api.PruneResult](n.Node, "prune", "--containers").Steps {
		removed = append(removed, names(r.Removed)...)
		kept = append(kept, names(r.Kept)...)
	}
	if len(removed) != 1 || removed[0] != "default_plain_u1" || len(kept) != 1 || kept[0] != "default_mounted_u2" {
		t.Errorf("removed %v, kept %v", removed, kept)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(plain); !os.IsNotExist(err) {
		t.Errorf("the logs of a pod that is gone: %v", err)
	}
}

func names(items []reclaim.Item) (all []string) {
	for _, it := range items {
		all = append(all, it.Name)
	}
	return all
}
