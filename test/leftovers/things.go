package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// machine is the machine to inspect.
type machine struct {
	root string   // "/", except in tests
	temp string   // the command's temporary directory
	home string   // the user's home directory
	keep []string // directories that do not count: caches and the working tree
}

// things is a snapshot of the machine.
type things struct {
	ours   []string
	places []string // in directories of container runtimes
	others bool     // another program's container runtime is running
}

// since returns what was not there before.
func (now things) since(before things) []string {
	left := slices.DeleteFunc(slices.Clone(now.ours), func(thing string) bool { return slices.Contains(before.ours, thing) })
	if now.others || before.others {
		return left
	}
	return append(left, slices.DeleteFunc(slices.Clone(now.places), func(thing string) bool { return slices.Contains(before.places, thing) })...)
}

var (
	// ours matches names that only criguard and its tests use, and traces of apt-get.
	ours = regexp.MustCompile(`criguard|^(containerd|runc|tmux|chromium|earlyoom)\.list$|^(src)?pkgcache\.bin$`)
	// owner matches the process ID in the names of labs and of tests' cgroups.
	owner = regexp.MustCompile(`criguard-(?:lab|test)[-/](\d+)-`)
	// random matches temporary files by the digits at the end. The command's own are below its own
	// directory.
	random = regexp.MustCompile(`^/(tmp|var/tmp)/.*\d{6,}$`)
	// runtimes matches programs that share directories with containerd and a kubelet.
	runtimes = regexp.MustCompile(`^(containerd|dockerd|crio|podman|conmon|kubelet|k3s|rke2|k0s)(-.*)?$`)
)

// place is a directory whose entries count, down to a given depth.
type place struct {
	dir   string
	depth int
}

// namedPlaces are shared with other programs: only names that are ours count.
func (m machine) namedPlaces() []place {
	return []place{
		{"/run", 2}, {"/tmp", 1}, {"/var/tmp", 1}, {"/dev/shm", 1}, {"/etc", 3}, {"/opt", 2}, {"/usr/bin", 1}, {"/usr/sbin", 1},
		{"/usr/local", 3}, {"/usr/lib", 3}, {"/usr/share", 3}, {"/var/lib", 2}, {"/var/lib/dpkg/info", 1}, {"/var/log", 2}, {"/var/cache", 2},
		{m.home, 3}, {m.home + "/.local/share", 2},
	}
}

// runtimePlaces are a container runtime's: everything new in them counts while no runtime is
// running.
var runtimePlaces = []place{
	{"/run/containerd", 2}, {"/run/k3s", 2}, {"/run/runc", 1}, {"/run/netns", 1}, {"/var/lib/containerd", 1}, {"/var/lib/cni", 2}, {"/var/lib/kubelet", 2},
	{"/var/log/pods", 1}, {"/var/log/containers", 1}, {"/etc/cni", 2}, {"/opt/cni", 2}, {"/opt/containerd", 1}, {"/sys/class/net", 1},
}

// look takes a snapshot. It treats unreadable entries as absent.
func (m machine) look() (t things) {
	add := func(kind, name string) {
		if !m.owned(name) {
			t.ours = append(t.ours, kind+" "+name)
		}
	}
	for _, p := range m.namedPlaces() {
		m.walk(p, func(path string) (deeper bool) {
			if slices.Contains(m.keep, path) || m.inUse(path) {
				return false
			}
			count := ours.MatchString(filepath.Base(path)) && !random.MatchString(path)
			if count {
				add("file", path)
			}
			// In a home, programs leave things at the top and in hidden directories. In others, its user may be at work.
			users := filepath.Dir(path) == m.home && !strings.HasPrefix(filepath.Base(path), ".")
			return !count && !users
		})
	}
	m.walk(place{m.temp, 1}, func(path string) bool { add("file", path); return false })
	m.walk(place{"/sys/fs/cgroup", 8}, func(path string) (deeper bool) {
		count := m.isDir(path) && m.isOurs(path)
		if count {
			add("cgroup", path)
		}
		return !count
	})
	t.others = m.processes(add)
	for _, p := range runtimePlaces {
		if m.exists(p.dir) {
			t.places = append(t.places, "file "+p.dir)
		}
		m.walk(p, func(path string) bool { t.places = append(t.places, "file "+path); return true })
	}
	m.lines(add)
	return t
}

// lines adds mounts, loop devices, users and groups.
func (m machine) lines(add func(kind, name string)) {
	for line := range strings.Lines(m.read("/proc/self/mountinfo")) {
		if fields := strings.Fields(line); m.isOurs(line) && len(fields) > 4 {
			add("mount", fields[4])
		}
	}
	loops, _ := filepath.Glob(filepath.Join(m.root, "/sys/block/loop*/loop/backing_file"))
	for _, path := range loops {
		if backing, _ := os.ReadFile(path); m.isOurs(string(backing)) {
			add("loop device", strings.TrimSpace(string(backing)))
		}
	}
	for _, file := range []string{"/etc/passwd", "/etc/group"} {
		for line := range strings.Lines(m.read(file)) {
			if name, _, _ := strings.Cut(line, ":"); m.isOurs(name) {
				add("name", name+" in "+file)
			}
		}
	}
}

// processes adds the command's processes, identified by their environment or cgroup. It reports
// whether another program's runtime is running.
func (m machine) processes(add func(kind, name string)) (others bool) {
	dirs, _ := filepath.Glob(filepath.Join(m.root, "/proc/[0-9]*"))
	for _, dir := range dirs {
		comm, _ := os.ReadFile(dir + "/comm")
		environ, _ := os.ReadFile(dir + "/environ")
		cgroup, _ := os.ReadFile(dir + "/cgroup")
		name := strings.TrimSpace(string(comm))
		switch {
		case bytes.Contains(environ, []byte(m.temp)):
			add("process", filepath.Base(dir)+" ("+name+")")
		case m.isOurs(string(cgroup)) && !m.owned(string(cgroup)):
			add("process", filepath.Base(dir)+" ("+name+") in "+strings.Join(strings.Fields(string(cgroup)), " "))
		case runtimes.MatchString(name):
			others = true
		}
	}
	return others
}

func (m machine) isOurs(text string) bool {
	return strings.Contains(text, "criguard") || strings.Contains(text, m.temp)
}

// inUse reports whether a directory holds a lab of a running process.
func (m machine) inUse(path string) bool {
	entries, _ := os.ReadDir(filepath.Join(m.root, path))
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return m.owned(path + "/" + e.Name()) })
}

// owned reports whether a name belongs to a running process, such as another test.
func (m machine) owned(name string) bool {
	id := owner.FindStringSubmatch(name)
	return id != nil && m.exists("/proc/"+id[1])
}

// walk calls visit for each entry of a place; if visit returns false, walk does not descend into
// it.
func (m machine) walk(p place, visit func(path string) bool) {
	entries, _ := os.ReadDir(filepath.Join(m.root, p.dir))
	for _, e := range entries {
		path := filepath.Join(p.dir, e.Name())
		if visit(path) && p.depth > 1 && e.IsDir() {
			m.walk(place{path, p.depth - 1}, visit)
		}
	}
}

func (m machine) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(m.root, path))
	return err == nil
}

func (m machine) isDir(path string) bool {
	info, err := os.Lstat(filepath.Join(m.root, path))
	return err == nil && info.IsDir()
}

func (m machine) read(path string) string {
	b, _ := os.ReadFile(filepath.Join(m.root, path))
	return string(b)
}
