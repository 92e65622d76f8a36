package rundir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/criguard/criguard/test/need"
)

// Operators' files belong to the operators' group.
func TestAccessOfGroup(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	const gid = 54321
	if err := (Access{0o640, gid}).Replace(dir, "file", []byte("text"), false); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "file")
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || sys.Gid != gid || st.Mode().Perm() != 0o640 {
		t.Errorf("%v %+v, want group %d and 0640", st.Mode(), st.Sys(), gid)
	}
}
