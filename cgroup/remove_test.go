package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// A child that another process removed during the walk is no failure of the removal.
func TestRemoveChildThatIsGone(t *testing.T) {
	dir := t.TempDir()
	above, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer above.Close()
	if err := removeChild(above, "gone"); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeChild(above, "file"); err == nil {
		t.Error("a file was removed, or counts as removed")
	}
}
