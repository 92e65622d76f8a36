package cgroup

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestStatfs(t *testing.T) {
	dir := t.TempDir()
	s, err := Statfs(dir)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	if s.Device != st.Dev || s.Total <= 0 || s.Available < 0 || s.Available > s.Total || s.InodesFree > s.Inodes {
		t.Errorf("got %+v of device %d", s, st.Dev)
	}
	if proc, err := Statfs("/proc"); err != nil || proc.Device == s.Device || proc.Total != 0 {
		t.Errorf("/proc is on device %d with %d bytes, %v", proc.Device, proc.Total, err)
	}
}

func TestStatfsOfWhatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	want, err := Statfs(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, below := range []string{"a/b/c", "file/below/it"} {
		path := filepath.Join(dir, below)
		if _, err := Statfs(path); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s: %v, want that it is not there", below, err)
		}
		if got, err := StatfsNearest(path); err != nil || got.Device != want.Device || got.Total != want.Total {
			t.Errorf("%s: got %+v, %v; want the directory's", below, got, err)
		}
	}
	if got, err := StatfsNearest("/no/such/path"); err != nil || got.Total == 0 {
		t.Errorf("climbing to the root: %+v, %v", got, err)
	}
	if _, err := StatfsNearest("no/such/relative/path"); err != nil {
		t.Errorf("a relative path climbs to the working directory: %v", err)
	}
}

// ofType sets the type of a filesystem, which has 32 bits and a sign on some processors.
func ofType(magic uint32, fs unix.Statfs_t) unix.Statfs_t {
	reflect.ValueOf(&fs).Elem().FieldByName("Type").SetInt(int64(int32(magic))) //nolint:gosec // only its bits count
	return fs
}

func TestSpaceOf(t *testing.T) {
	for name, c := range map[string]struct {
		in   unix.Statfs_t
		want Space
	}{
		"blocks of the fragment size": {
			unix.Statfs_t{Bsize: 1 << 20, Frsize: 4096, Blocks: 100, Bfree: 60, Bavail: 50, Files: 10, Ffree: 3},
			Space{Device: 7, Total: 409600, Available: 204800, Inodes: 10, InodesFree: 3, Reserved: 40960},
		},
		"without a fragment size": {unix.Statfs_t{Bsize: 512, Blocks: 4, Bavail: 2}, Space{Device: 7, Total: 2048, Available: 1024}},
		"a subvolume of a btrfs": {
			ofType(unix.BTRFS_SUPER_MAGIC, unix.Statfs_t{Frsize: 4096, Blocks: 4, Fsid: unix.Fsid{Val: [2]int32{11, 22}}}),
			Space{Device: 7, Pool: 11, Total: 16384, Lag: 5 * time.Second, ByCommit: true},
		},
		"a dataset of ZFS": {ofType(zfsMagic, unix.Statfs_t{Frsize: 4096, Blocks: 4}), Space{Device: 7, Total: 16384, Lag: 6 * time.Second}},
		"tmpfs":            {ofType(unix.TMPFS_MAGIC, unix.Statfs_t{Bsize: 4096, Blocks: 4}), Space{Device: 7, Total: 16384, InMemory: true}},
		"without any size": {unix.Statfs_t{Blocks: 4, Bavail: 2}, Space{Device: 7}},
		"unlimited": {
			unix.Statfs_t{Frsize: 4096, Blocks: math.MaxUint64, Bavail: math.MaxUint64, Files: math.MaxUint64, Ffree: math.MaxUint64},
			Space{Device: 7, Total: math.MaxInt64, Available: math.MaxInt64, Inodes: math.MaxInt64, InodesFree: math.MaxInt64},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := spaceOf(&c.in, 7); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// Only btrfs has a commit to start.
func TestStartCommitElsewhere(t *testing.T) {
	if err := StartCommit("/proc"); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("on proc: %v", err)
	}
	if err := StartCommit(filepath.Join(t.TempDir(), "none")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("nowhere: %v", err)
	}
}
