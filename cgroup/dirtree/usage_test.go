package dirtree

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/test/leak"
	"github.com/criguard/criguard/test/need"
)

// writeKiB writes a file of this size and creates its parent directories.
func writeKiB(t *testing.T, path string, kib int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, kib<<10), 0o600); err != nil {
		t.Fatal(err)
	}
}

func allocated(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func measureTree(t *testing.T, root string) Usage {
	t.Helper()
	u, err := Measure(t.Context(), root, nil)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Measure counts the tree itself, but neither the target of a link nor another filesystem.
func TestMeasureTree(t *testing.T) {
	outside := t.TempDir()
	writeKiB(t, filepath.Join(outside, "large"), 512)
	root := filepath.Join(t.TempDir(), "volumes")
	writeKiB(t, filepath.Join(root, "a"), 64)
	writeKiB(t, filepath.Join(root, "b/c"), 32)
	if err := os.Symlink(outside, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b/also a", "b/a again"} {
		if err := os.Link(filepath.Join(root, "a"), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(root, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := Usage{Inodes: 6}
	for _, path := range []string{"", "a", "b", "b/c", "link", "fifo"} {
		want.Bytes += allocated(t, filepath.Join(root, path))
	}
	var last Usage
	got, err := Measure(t.Context(), root, func(u Usage) { last = u })
	if err != nil || got != want || last != want.larger(Usage{}) {
		t.Errorf("%+v, %v, progress %+v, want %+v", got, err, last, want)
	}
	if got := measureTree(t, filepath.Join(root, "not there")); got != (Usage{}) {
		t.Errorf("a tree that does not exist takes %+v", got)
	}
	if got := measureTree(t, filepath.Join(root, "link")); got.Inodes != 1 || got.Partial {
		t.Errorf("a link as the root: %+v", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := Measure(ended, root, nil); err != nil || !got.Partial || got.Inodes != 1 {
		t.Errorf("after its deadline: %+v, %v", got, err)
	}
}

// deepTree creates nested directories below dir and returns a descriptor of the deepest one.
func deepTree(t *testing.T, dir, name string, depth int) int {
	t.Helper()
	fd, err := openDirAt(unix.AT_FDCWD, dir)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		if err = unix.Mkdirat(fd, name, 0o755); err != nil {
			t.Fatal(err)
		}
		var child int
		child, err = openDirAt(fd, name)
		_ = unix.Close(fd)
		fd = child
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func writeAt(t *testing.T, dir int, name string, kib int) {
	t.Helper()
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, make([]byte, kib<<10)); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
}

// Measure counts a file whose path is longer than PATH_MAX, and files next to the directories on
// the way, to which the walk returns later.
func TestMeasureTreeCountsDeepPaths(t *testing.T) {
	for _, c := range []struct{ name, depth int }{{250, 20}, {250, maxOpenDirs + 50}, {1, 2000}} {
		root := t.TempDir()
		name := strings.Repeat("m", c.name)
		deepest := deepTree(t, root, name, c.depth)
		writeAt(t, deepest, "large", 1024)
		beside := 0
		for path := root; len(path)+c.name < unix.PathMax-10 && beside < c.depth; beside++ {
			for _, other := range []string{"a", "z"} { // one of them sorts before the directory, one after it
				writeKiB(t, filepath.Join(path, other), 4)
			}
			path = filepath.Join(path, name)
		}
		got := measureTree(t, root)
		if want := int64(1 + c.depth + 1 + 2*beside); got.Partial || got.Inodes != want || got.Bytes < int64(1024+8*beside)<<10 {
			t.Errorf("%d levels of %d letters: %+v, want %d inodes", c.depth, c.name, got, want)
		}
	}
}

// A tree deeper than the walk's limit is reported as partial.
func TestMeasureTreeBoundsDepth(t *testing.T) {
	const depth = 2 * maxOpenDirs
	root := t.TempDir()
	deepTree(t, root, "d", depth)
	for limit, partial := range map[int]bool{depth: true, depth + 1: false} {
		w := walk{depth: limit, low: 1}
		if err := w.run(t.Context(), root); err != nil {
			t.Fatal(err)
		}
		if got := w.usage(); got.Partial != partial || got.Inodes != depth+1 {
			t.Errorf("of %d levels: %+v, want %d inodes", limit, got, depth+1)
		}
	}
}

// Measure continues after any number of hard links, and counts each inode once.
func TestMeasureTreeCountsBehindHardLinks(t *testing.T) {
	root := t.TempDir()
	for i := range 4 {
		first := filepath.Join(root, fmt.Sprintf("a%d", i))
		writeKiB(t, first, 0)
		for j := range 51_250 {
			if err := os.Link(first, fmt.Sprintf("%s-%d", first, j)); err != nil {
				t.Fatal(err)
			}
		}
	}
	writeKiB(t, filepath.Join(root, "z"), 512)
	want := Usage{Bytes: allocated(t, root) + allocated(t, filepath.Join(root, "z")), Inodes: 6}
	begun := time.Now()
	got := measureTree(t, root)
	t.Logf("205,000 names in %s", time.Since(begun))
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Every inode counts, however many there are: a limit would rank the largest tree behind a smaller one.
func TestMeasureTreeCountsManyInodes(t *testing.T) {
	root, err := os.MkdirTemp("/dev/shm", "") // on a disk, this takes 20 s
	if err != nil {
		root = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	const dirs, files = 23, 10_000
	for i := range dirs {
		sub := filepath.Join(root, fmt.Sprint(i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range files {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(j)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := measureTree(t, root).Inodes, int64(1+dirs+dirs*files); got != want {
		t.Errorf("%d inodes, want %d", got, want)
	}
}

// A directory that cannot be read makes the result partial.
func TestMeasureTreeIsPartialWithoutPermission(t *testing.T) {
	root := t.TempDir()
	writeKiB(t, filepath.Join(root, "closed/file"), 64)
	chmod(t, filepath.Join(root, "closed"), 0)
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, "closed"), 0o700) })
	measured := make(chan struct{})
	go func() {
		defer close(measured)
		if os.Geteuid() == 0 {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if err := obeyModes(); err != nil {
				t.Error(err)
			}
		}
		if got, err := Measure(t.Context(), root, nil); !got.Partial || got.Inodes != 2 || err != nil {
			t.Errorf("%+v, %v, want at least 2 inodes", got, err)
		}
		if u, err := Measure(t.Context(), filepath.Join(root, "closed"), nil); err == nil {
			t.Errorf("a root that cannot be read takes %+v", u)
		}
	}()
	<-measured
}

// obeyModes drops the capabilities with which root can read any file, for this thread only.
func obeyModes() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	return unix.Capset(&header, &data[0])
}

// whileSwapping runs do while two names are constantly exchanged.
func whileSwapping(a, b string, do func()) {
	whileRepeating(func() { _ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) }, do)
}

// whileRepeating runs do while disturb is called again and again.
func whileRepeating(disturb, do func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				disturb()
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	do()
}

// While a directory is swapped with a link to another place, nothing outside the tree counts. If the
// walk missed something, the result is partial.
func TestMeasureTreeStaysInside(t *testing.T) {
	outside := t.TempDir()
	writeKiB(t, filepath.Join(outside, "sub/large"), 64<<10)
	root := t.TempDir()
	writeKiB(t, filepath.Join(root, "dir/sub/file"), 1<<10)
	symlink(t, outside, filepath.Join(root, "link"))
	deepTree(t, filepath.Join(root, "dir"), "deep", 2*maxOpenDirs)
	want := measureTree(t, root)
	if want.Partial || want.Inodes != 5+2*maxOpenDirs {
		t.Fatalf("at rest: %+v", want)
	}
	partial, missed := 0, 0
	whileSwapping(filepath.Join(root, "dir"), filepath.Join(root, "link"), func() {
		for range 500 {
			got := measureTree(t, root)
			switch {
			case got.Bytes > want.Bytes:
				t.Fatalf("%+v: counted what is outside", got)
			case !got.Partial && got != want:
				t.Fatalf("%+v counts as exact, want %+v", got, want)
			case got.Bytes < 1<<20:
				missed++
			}
			if got.Partial {
				partial++
			}
		}
	})
	t.Logf("of 500 measurements, %d were partial and %d missed the file", partial, missed)
	if missed == 500 {
		t.Error("the file was never found")
	}
}

// A file that is constantly renamed is counted, or the result is partial.
func TestMeasureTreeFindsRenamedFiles(t *testing.T) {
	root := t.TempDir()
	writeKiB(t, filepath.Join(root, "a"), 1<<10)
	want := measureTree(t, root)
	whileRepeating(func() {
		_ = os.Rename(filepath.Join(root, "a"), filepath.Join(root, "b"))
		_ = os.Rename(filepath.Join(root, "b"), filepath.Join(root, "a"))
	}, func() {
		for range 500 {
			if got := measureTree(t, root); got.Bytes < want.Bytes && !got.Partial {
				t.Fatalf("%+v counts as exact, want %+v", got, want)
			}
		}
	})
}

// An entry that moves between two reads of its directory can be missing from both. If one read holds all entries, none is.
func TestMeasureTreeNoticesMovesBetweenReads(t *testing.T) {
	for name, c := range map[string]struct {
		files int
		want  bool
	}{
		"one read":   {100, false},
		"many reads": {2000, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, moves := range []bool{true, false} {
				root := t.TempDir()
				for i := range c.files {
					writeKiB(t, filepath.Join(root, fmt.Sprint("file", i)), 0)
				}
				w := walk{depth: maxTreeDepth, low: 1}
				if err := w.begin(root); err != nil {
					t.Fatal(err)
				}
				reads := 0
				for len(w.levels) > 0 {
					l := &w.levels[0]
					begins := len(l.unread) == 0
					if _, ok := w.next(); !ok {
						w.ascend()
						continue
					}
					if begins {
						reads++
					}
					if begins && reads == 1 && moves {
						writeKiB(t, filepath.Join(root, "new"), 0)
					}
				}
				w.close()
				if reads > 1 != c.want || w.changed != (c.want && moves) {
					t.Errorf("moves %t: %d reads, changed %t", moves, reads, w.changed)
				}
			}
		})
	}
}

// If a directory moves while the walk is below it, the result may lack what could not be found again,
// but nothing that is still in its place.
func TestMeasureTreeFindsItsWayBack(t *testing.T) {
	const depth = 3 * maxOpenDirs
	const low = depth + 2 - maxOpenDirs // the highest open level below the root
	for moved, lost := range map[int]bool{1: false, 2: true, maxOpenDirs: true, low: true, low + 1: false, depth: false} {
		root := t.TempDir()
		place := func(level int) string { return filepath.Join(root, strings.Repeat("m/", level)) }
		deepTree(t, root, "m", depth)
		aside := t.TempDir()
		fds := len(leak.OpenDescriptors())
		w := walk{depth: maxTreeDepth, low: 1}
		if err := w.begin(root); err != nil {
			t.Fatal(err)
		}
		for len(w.levels) <= depth {
			if e, ok := w.next(); ok {
				w.visit(e)
			}
		}
		if n := len(leak.OpenDescriptors()) - fds; n > maxOpenDirs {
			t.Errorf("%d descriptors are open, want %d at most", n, maxOpenDirs)
		}
		if err := os.Rename(place(moved), filepath.Join(aside, "moved")); err != nil {
			t.Fatal(err)
		}
		for len(w.levels) > 0 {
			if e, ok := w.next(); ok {
				w.visit(e)
			} else if w.ascend(); len(w.levels) > 0 && w.levels[len(w.levels)-1].fd < 0 {
				t.Fatal("a closed directory is read")
			}
		}
		w.close()
		if got := w.usage(); got.Inodes != depth+1 || got.Partial || w.changed != lost {
			t.Errorf("level %d moved: %+v, want %d inodes", moved, got, depth+1)
		}
		if n := len(leak.OpenDescriptors()); n != fds {
			t.Errorf("%d descriptors are left open", n-fds)
		}
	}
}

// Measure enters neither another filesystem nor a bind mount of the same one: their contents remain
// when the pod is gone.
func TestMeasureTreeStaysOnItsMount(t *testing.T) {
	elsewhere := t.TempDir()
	writeKiB(t, filepath.Join(elsewhere, "large"), 512)
	root := t.TempDir()
	for _, name := range []string{"bind", "tmpfs"} {
		writeKiB(t, filepath.Join(root, name, "below"), 4)
	}
	writeKiB(t, filepath.Join(root, "file"), 0)
	mount := func(source, target, kind string, flags uintptr) {
		t.Helper()
		need.Mount(t, source, filepath.Join(root, target), kind, flags, "")
	}
	mount(elsewhere, "bind", "", unix.MS_BIND)
	mount("tmpfs", "tmpfs", "tmpfs", 0)
	mount(filepath.Join(elsewhere, "large"), "file", "", unix.MS_BIND)
	writeKiB(t, filepath.Join(root, "tmpfs/in memory"), 512)
	want := Usage{Bytes: allocated(t, root), Inodes: 1}
	if got := measureTree(t, root); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Before linux 5.8 there is no mount ID, so devices are compared.
func TestSameMount(t *testing.T) {
	numbered := func(dev, mount uint64) fileID { return fileID{dev: dev, mount: mount, mounts: true} }
	for _, c := range []struct {
		name string
		a, b fileID
		want bool
	}{
		{"a bind mount of one device", numbered(1, 1), numbered(1, 2), false},
		{"a subvolume", numbered(1, 1), numbered(2, 1), true},
		{"one device, not numbered", fileID{dev: 1}, fileID{dev: 1}, true},
		{"two devices, not numbered", fileID{dev: 1}, fileID{dev: 2}, false},
	} {
		if got := c.a.sameMount(c.b); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// fstatat, for old kernels, returns the same as statx except for the mount.
func TestFstatat(t *testing.T) {
	dir := t.TempDir()
	writeKiB(t, filepath.Join(dir, "file"), 64)
	fresh, err := statx(unix.AT_FDCWD, filepath.Join(dir, "file"), 0)
	if err != nil {
		t.Fatal(err)
	}
	old, err := fstatat(unix.AT_FDCWD, filepath.Join(dir, "file"), unix.AT_SYMLINK_NOFOLLOW)
	fresh.id.mount, fresh.id.mounts = 0, false
	if err != nil || old != fresh {
		t.Errorf("%+v, %v, want %+v", old, err, fresh)
	}
}

// entryBytes encodes an entry as getdents64 returns it.
func entryBytes(next uint64, name string) []byte {
	b := make([]byte, (direntHeader+len(name)+8)&^7)
	b[18] = unix.DT_REG
	binary.NativeEndian.PutUint64(b, 1)
	binary.NativeEndian.PutUint64(b[8:], next)
	binary.NativeEndian.PutUint16(b[16:], uint16(len(b))) //nolint:gosec // a short name
	copy(b[direntHeader:], name)
	return b
}

func FuzzParseDirent(f *testing.F) {
	f.Add(append(entryBytes(7, "file"), entryBytes(8, ".")...))
	f.Add(entryBytes(9, "file")[:20])
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			e, rest, ok := parseDirent(b)
			if !ok {
				return
			}
			if e.name == "" || strings.ContainsAny(e.name, "/\x00") || len(rest) >= len(b) {
				t.Fatalf("%+v, %d of %d bytes left", e, len(rest), len(b))
			}
			b = rest
		}
	})
}

func TestParseDirent(t *testing.T) {
	b := append(entryBytes(7, "file"), entryBytes(8, "..")...)
	first, rest, ok := parseDirent(b)
	second, end, ok2 := parseDirent(rest)
	if !ok || !ok2 || first != (dirent{"file", 7, unix.DT_REG}) || second != (dirent{"..", 8, unix.DT_REG}) || len(end) != 0 {
		t.Errorf("%+v, %+v, %d bytes left", first, second, len(end))
	}
}
