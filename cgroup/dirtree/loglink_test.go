package dirtree

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/test/leak"
)

// Docker's log only counts through the link that cri-dockerd creates.
func TestReadLogLink(t *testing.T) {
	me := uint32(os.Geteuid()) //nolint:gosec // a user's number
	for _, c := range []struct {
		name string
		make func(t *testing.T, link, target string) // runs after both directories and the target exist
		want bool
	}{
		{"the link", func(t *testing.T, link, target string) { symlink(t, target, link) }, true},
		{"a plain log", func(t *testing.T, link, _ string) { writeKiB(t, link, 4) }, false},
		{"no log", func(*testing.T, string, string) {}, false},
		{"a relative target", func(t *testing.T, link, _ string) { symlink(t, "../../x", link) }, false},
		{"a target that is gone", func(t *testing.T, link, target string) {
			symlink(t, target, link)
			remove(t, target)
		}, false},
		{"a link to a link", func(t *testing.T, link, target string) {
			symlink(t, target, target+"2")
			symlink(t, target+"2", link)
		}, false},
		{"a link to a directory", func(t *testing.T, link, target string) { symlink(t, filepath.Dir(target), link) }, false},
		{"a link to a device", func(t *testing.T, link, _ string) { symlink(t, "/dev/zero", link) }, false},
		{"a directory that others may write to", func(t *testing.T, link, target string) {
			symlink(t, target, link)
			chmod(t, filepath.Dir(link), 0o777)
		}, false},
		{"a pod's directory that others may write to", func(t *testing.T, link, target string) {
			symlink(t, target, link)
			chmod(t, filepath.Dir(filepath.Dir(link)), 0o775)
		}, false},
		{"a container's directory that is a link", func(t *testing.T, link, target string) {
			remove(t, filepath.Dir(link))
			elsewhere := t.TempDir()
			symlink(t, elsewhere, filepath.Dir(link))
			symlink(t, target, filepath.Join(elsewhere, filepath.Base(link)))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "containers/id/id-json.log")
			writeKiB(t, target, 512)
			link := filepath.Join(t.TempDir(), "ns_name_uid/main/0.log")
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			want := LogLink{Target: target, Bytes: allocated(t, target), SameDevice: true}
			c.make(t, link, target)
			got, ok, err := readLogLink(link, me)
			if ok != c.want || ok && got != want || err != nil && c.name != "no log" && c.name != "a target that is gone" {
				t.Errorf("%+v, %v, %v", got, ok, err)
			}
			if _, ok, _ := readLogLink(link, me+1); ok {
				t.Error("another user's link is followed")
			}
			if _, _, err := ReadLogLink(link); err != nil {
				t.Error(err)
			}
		})
	}
}

func symlink(t *testing.T, target, link string) {
	t.Helper()
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string, mode uint32) {
	t.Helper()
	if err := unix.Chmod(path, mode); err != nil { // os.Chmod is the same without the umask
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }
