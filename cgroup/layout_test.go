package cgroup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup/mountinfo"
	"github.com/criguard/criguard/test/need"
)

// write creates files below a directory, with their parents.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDetectCapturedTrees(t *testing.T) {
	for name, c := range map[string]struct {
		version Version
		dirs    map[string]string // by controller, below the root
	}{
		"6.18-hybrid-cgroupfs": {Hybrid, map[string]string{
			"memory": "memory/a/b", "pids": "pids/a/b", "cpu": "cpu/a/b", "absent": "unified/a/b",
		}},
		"6.1-v2-systemd": {V2, map[string]string{"memory": "a/b", "pids": "a/b", "absent": "a/b"}},
		"5.10-v1-cgroupfs": {V1, map[string]string{
			"memory": "memory/a/b", "net_prio": "net_cls,net_prio/a/b", "absent": "absent/a/b",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := testTree(t, name)
			if l.Version != c.version {
				t.Errorf("version %s, want %s", l.Version, c.version)
			}
			for controller, want := range c.dirs {
				if got := l.Dir(controller, "/a/b"); got != filepath.Join(l.root, want) {
					t.Errorf("%s is at %s, want %s", controller, got, want)
				}
			}
		})
	}
}

func TestDetectFromMounts(t *testing.T) {
	const (
		memory  = "35 31 0:32 / %/memory rw,relatime - cgroup cgroup rw,memory\n"
		pids    = "39 31 0:36 / %/pids rw,relatime - cgroup cgroup rw,pids\n"
		both    = "34 30 0:30 / %/cpu,cpuacct rw shared:15 master:3 - cgroup cgroup rw,cpu,cpuacct\n"
		unified = "41 31 0:38 / %/unified rw,relatime - cgroup2 cgroup2 rw\n"
		v2      = "31 23 0:26 / % rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	)
	for name, c := range map[string]struct {
		mounts  string // % is the root
		files   map[string]string
		version Version
		tree    string
		dirs    map[string]string
	}{
		"v1":             {mounts: memory + pids + both, version: V1, tree: "memory", dirs: map[string]string{"memory": "memory", "cpuacct": "cpu,cpuacct"}},
		"hybrid":         {mounts: memory + pids + unified, version: Hybrid, tree: "memory", dirs: map[string]string{"memory": "memory"}},
		"v2":             {mounts: v2, version: V2, dirs: map[string]string{"memory": ".", "pids": "."}},
		"v2 and one v1":  {mounts: v2 + both, version: V2, dirs: map[string]string{"memory": ".", "cpu": "cpu,cpuacct"}},
		"mounted oddly":  {mounts: strings.ReplaceAll(memory, "%/memory", `%/mem\040ory`), version: V1, tree: "memory", dirs: map[string]string{"memory": "mem ory"}},
		"memory is off":  {mounts: pids + both, version: V1, tree: "pids", dirs: map[string]string{"pids": "pids", "memory": "memory"}},
		"only cpu":       {mounts: both, version: V1, tree: "cpu", dirs: map[string]string{"cpu": "cpu,cpuacct"}},
		"elsewhere, too": {mounts: "9 1 0:32 / /mnt/memory rw - cgroup cgroup rw,memory\n" + memory, version: V1, tree: "memory", dirs: map[string]string{"memory": "memory"}},
		"a part first": {
			mounts: strings.ReplaceAll(memory, " / %/memory", " /docker/x %/part") + memory, version: V1, tree: "memory",
			dirs: map[string]string{"memory": "memory"},
		},
		"in a container with its part only": {
			mounts: strings.ReplaceAll(memory, " / %", " /docker/x %"), version: V1, tree: "memory", dirs: map[string]string{"memory": "memory"},
		},
		"in a pod with the node's tree and its own cgroup namespace": {
			mounts: strings.ReplaceAll(v2, " / %", " /../../../.. %"), version: V2, dirs: map[string]string{"memory": "."},
		},
		"hybrid with memory on v2": {
			mounts: pids + unified, files: map[string]string{"unified/cgroup.controllers": "cpu memory\n"},
			version: V2, dirs: map[string]string{"memory": "unified", "pids": "pids"},
		},
		"hybrid with memory off": {
			mounts: pids + unified, files: map[string]string{"unified/cgroup.controllers": "cpu\n"},
			version: Hybrid, tree: "pids", dirs: map[string]string{"pids": "pids"},
		},
		"root mounted elsewhere: the files count": {
			mounts: strings.ReplaceAll(v2, "%", "/elsewhere"), files: map[string]string{"cgroup.controllers": "memory\n"},
			version: V2, dirs: map[string]string{"memory": "."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root := filepath.Join(dir, "cgroup")
			write(t, root, c.files)
			mounts := strings.ReplaceAll("22 27 0:21 / /proc rw - proc proc rw\n"+c.mounts, "%", root)
			write(t, dir, map[string]string{"proc/self/mountinfo": mounts})
			l, err := Detect(Root(root), Proc(filepath.Join(dir, "proc")))
			if err != nil {
				t.Fatal(err)
			}
			if l.Version != c.version || l.tree != c.tree {
				t.Errorf("version %s in %q, want %s in %q", l.Version, l.tree, c.version, c.tree)
			}
			for controller, want := range c.dirs {
				if got := l.Dir(controller, "/"); got != filepath.Join(root, want) {
					t.Errorf("%s is at %s, want %s", controller, got, want)
				}
			}
		})
	}
}

func TestDetectNothing(t *testing.T) {
	if l, err := Detect(Root(t.TempDir()), "/proc"); err == nil {
		t.Errorf("found %+v in an empty directory", l)
	}
	if _, err := Detect(Root(filepath.Join(t.TempDir(), "no")), "/proc"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such root: %v", err)
	}
}

func TestDirNeverLeavesTheHierarchy(t *testing.T) {
	l := testTree(t, "6.18-hybrid-cgroupfs")
	base := l.Dir("memory", "/")
	for _, rel := range []string{"", "/", ".", "..", "../..", "/../../etc", "a/../../..", "//a//..//..", "a/./b"} {
		got := l.Dir("memory", rel)
		if got != base && !isBelow(got, base) {
			t.Errorf("Dir(%q) = %s, outside of %s", rel, got, base)
		}
	}
}

func TestChildren(t *testing.T) {
	l := testTree(t, "6.1-v2-systemd")
	got, err := l.Children("/kubepods.slice")
	if want := []string{"kubepods-besteffort.slice", "kubepods-burstable.slice"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if _, err := l.Children("/gone"); !errors.Is(err, ErrGone) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a cgroup that is not there: %v, want ErrGone, which is fs.ErrNotExist", err)
	}
}

func TestInodeTellsIncarnationsApart(t *testing.T) {
	l := realV1(t)
	rel := ownCgroup(t, l)
	first, err := l.Inode(rel)
	if err != nil || first == 0 {
		t.Fatal(first, err)
	}
	if again, err := l.Inode(rel); again != first || err != nil {
		t.Errorf("the same cgroup has inode %d and then %d, %v", first, again, err)
	}
	if err := os.Remove(l.dir(rel)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Inode(rel); !errors.Is(err, ErrGone) {
		t.Errorf("a removed cgroup: %v, want ErrGone", err)
	}
	if err := os.Mkdir(l.dir(rel), 0o755); err != nil {
		t.Fatal(err)
	}
	if other, err := l.Inode(rel); other == first || err != nil {
		t.Errorf("another cgroup under the same path has inode %d as the first, %v", other, err)
	}
	if _, err := l.Inode(rel + "/cgroup.procs"); err == nil {
		t.Error("a file passed for a cgroup")
	}
}

func TestVersionString(t *testing.T) {
	for v, want := range map[Version]string{V1: "v1", Hybrid: "hybrid", V2: "v2", 0: "Version(0)"} {
		if v.String() != want {
			t.Errorf("%d is %q, want %q", uint8(v), v, want)
		}
	}
}

func FuzzMounts(f *testing.F) {
	addFiles(f, "proc/self/mountinfo")
	f.Fuzz(func(t *testing.T, b []byte) {
		l := Layout{root: "/sys/fs/cgroup"}
		mounts, _ := mountinfo.Parse(bytes.NewReader(b))
		l.fromMounts(mounts)
		for c, dir := range l.v1 {
			if dir != l.root && !isBelow(dir, l.root) {
				t.Fatalf("%s at %q, outside of the root", c, dir)
			}
		}
		if l.unified != "" && l.unified != l.root && !isBelow(l.unified, l.root) {
			t.Fatalf("v2 at %q, outside of the root", l.unified)
		}
	})
}

// A bind mount that is read-only counts, on a filesystem that is writable elsewhere.
func TestReadOnly(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"memory/cgroup.procs": ""})
	layout := func() Layout {
		l, err := Detect(Root(dir), "/none")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := layout(); l.ReadOnly() || l.Root() != dir {
		t.Errorf("%s is read-only", l.Root())
	}
	for _, flags := range []uintptr{unix.MS_BIND, unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY} {
		if err := unix.Mount(dir, dir, "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	if !layout().ReadOnly() {
		t.Error("not read-only")
	}
}
