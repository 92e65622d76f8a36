package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree returns a machine with only a few files.
func tree(t *testing.T) machine {
	t.Helper()
	m := machine{root: t.TempDir(), temp: "/tmp/cg123456", home: "/root", keep: []string{"/root/.cache/criguard-lab", "/root/criguard"}}
	put(t, m, "/proc/7/comm", "/etc/passwd", "/run/user/1", m.temp+"/")
	return m
}

// put creates files, and directories for paths that end in a slash. The text after "=" is the
// file's content.
func put(t *testing.T, m machine, paths ...string) {
	t.Helper()
	for _, path := range paths {
		path, text, _ := strings.Cut(path, "=")
		full := filepath.Join(m.root, path)
		var err error
		if strings.HasSuffix(path, "/") {
			err = os.MkdirAll(full, 0o755)
		} else {
			err = errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(text), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLook(t *testing.T) {
	const mount = "/proc/self/mountinfo=36 35 0:30 / /mnt rw - tmpfs "
	for _, c := range []struct{ put, want string }{
		{"/run/criguard/history.jsonl", "file /run/criguard"},
		{"/etc/systemd/system/criguard.service", "file /etc/systemd/system/criguard.service"},
		{"/var/lib/dpkg/info/containerd.list", "file /var/lib/dpkg/info/containerd.list"},
		{"/var/cache/apt/pkgcache.bin", "file /var/cache/apt/pkgcache.bin"},
		{"/tmp/cg123456/Test1/", "file /tmp/cg123456/Test1"},
		{"/dev/shm/criguard-idle-1", "file /dev/shm/criguard-idle-1"},
		{"/var/lib/criguard-lab/8-1/", "file /var/lib/criguard-lab"}, // its owner is gone
		{"/sys/fs/cgroup/memory/criguard-test-8-x/", "cgroup /sys/fs/cgroup/memory/criguard-test-8-x"},
		{"/root/criguard.toml", "file /root/criguard.toml"},
		{"/root/.config/criguard/x", "file /root/.config/criguard"},
		{"/run/containerd/s/abc", "file /run/containerd"},
		{"/run/netns/", "file /run/netns"},
		{"/sys/class/net/cni0/", "file /sys/class/net/cni0"},
		{mount + "criguard-lab rw", "mount /mnt"},
		{"/sys/block/loop3/loop/backing_file=/tmp/cg123456/disk.img (deleted)", "loop device /tmp/cg123456/disk.img (deleted)"},
		{"/etc/passwd=root:x:0\ncriguard:x:9\n", "name criguard in /etc/passwd"},
		{"/proc/9/environ=A=b\x00TMPDIR=/tmp/cg123456\x00", "process 9 ()"},
		{"/proc/9/cgroup=4:memory:/criguard-lab-8-1/runtime\n", "process 9 () in 4:memory:/criguard-lab-8-1/runtime"},

		{"/run/other/x", ""},
		{"/tmp/criguard-test-2894711", ""}, // of other tests: ours are in temp
		{"/var/lib/criguard-lab/7-1/", ""}, // its owner is running
		{"/sys/fs/cgroup/memory/criguard-lab-7-1/", ""},
		{"/sys/fs/cgroup/memory/kubepods/", ""},
		{"/root/.cache/criguard-lab/debian/", ""},
		{"/root/src/criguard/", ""}, // its user is at work
		{"/root/criguard/bin/criguard", ""},
		{mount + "none rw", ""},
		{"/proc/9/environ=A=b", ""},
	} {
		t.Run(c.put, func(t *testing.T) {
			m := tree(t)
			put(t, m, "/sys/class/net/lo/")
			before := m.look()
			put(t, m, c.put)
			left := m.look().since(before)
			if c.want == "" && len(left) > 0 || c.want != "" && !slices.Contains(left, c.want) {
				t.Errorf("left %q, want %q", left, c.want)
			}
		})
	}
}

// New entries in the runtimes' directories do not count while another program's runtime is running,
// or was before.
func TestOtherRuntime(t *testing.T) {
	for _, during := range []bool{false, true} {
		m := tree(t)
		if !during {
			put(t, m, "/proc/9/comm=containerd\n", "/proc/9/cgroup=4:memory:/criguard-lab-7-1/runtime\n")
		}
		before := m.look()
		put(t, m, "/run/netns/a")
		if during {
			put(t, m, "/proc/9/comm=k3s\n")
		} else if err := os.RemoveAll(filepath.Join(m.root, "/proc/9")); err != nil {
			t.Fatal(err)
		}
		if left := m.look().since(before); len(left) > 0 {
			t.Errorf("left %q", left)
		}
	}
}

// The processes and the temporary directories are the machine's own. Its other places are not: somebody may put a file there
// meanwhile whose name is ours.
func TestRun(t *testing.T) {
	m := tree(t)
	for _, dir := range []string{"/proc", os.TempDir()} {
		at := filepath.Join(m.root, dir)
		if err := errors.Join(os.RemoveAll(at), os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(dir, at)); err != nil {
			t.Fatal(err)
		}
	}
	pid := filepath.Join(t.TempDir(), "pid")
	t.Cleanup(func() {
		var process int
		text, _ := os.ReadFile(pid)
		if _, err := fmt.Sscan(string(text), &process); err != nil || unix.Kill(process, unix.SIGKILL) != nil {
			t.Errorf("kill %q: %v", text, err)
		}
	})
	for _, c := range []struct{ script, want string }{
		{`echo x >"$TMPDIR/x"; rm "$TMPDIR/x"`, ""},
		{`exit 3`, "exit status 3"},
		{`echo x >"$TMPDIR/left"`, "/left"},
		{`sleep 600 & echo $! >` + pid, " (sleep)"},
	} {
		err := run(m, []string{"sh", "-c", c.script}, time.Second)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.script, err, c.want)
		}
	}
}
