package world

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memory returns the path of a file of the memory controller.
func (k *kernel) memory(rel, name string) string {
	if k.v1 {
		return filepath.Join("sys/fs/cgroup/memory", rel, name)
	}
	return filepath.Join("sys/fs/cgroup", rel, name)
}

// tasks returns the path of a file of the pids controller.
func (k *kernel) tasks(rel, name string) string {
	if k.v1 {
		return filepath.Join("sys/fs/cgroup/pids", rel, name)
	}
	return filepath.Join("sys/fs/cgroup", rel, name)
}

// usageFile is the name of the file of what a cgroup uses.
func (k *kernel) usageFile() string {
	if k.v1 {
		return "memory.usage_in_bytes"
	}
	return "memory.current"
}

// statFormat is the format of memory.stat: of memory that is in no file, that in files and swap on v1; of the first, twice the
// second, and all memory on v2.
func (k *kernel) statFormat() string {
	if k.v1 {
		return "total_rss %d\ntotal_shmem %d\ntotal_swap %d\ntotal_inactive_file 0\ntotal_active_file 0\n"
	}
	return "anon %d\nfile %d\nshmem %d\ninactive_anon 0\nactive_anon %d\ninactive_file 0\nactive_file 0\n"
}

// makeFiles makes the files of a cgroup. A leaf has a process, the others have some below.
func (k *kernel) makeFiles(rel string, leaf bool) {
	u := uses{
		memory: k.create(k.memory(rel, k.usageFile()), "0\n"), stat: k.create(k.memory(rel, "memory.stat"), strings.ReplaceAll(k.statFormat(), "%d", "0")), tasks: k.create(k.tasks(rel, "pids.current"), "0\n"),
	}
	k.create(k.tasks(rel, "pids.max"), "max\n")
	if k.flat {
		k.flatten(rel)
	}
	if k.v1 {
		k.create(k.memory(rel, "memory.limit_in_bytes"), "9223372036854771712\n")
		procs := ""
		if leaf {
			procs = somePID
		}
		k.create(k.memory(rel, "cgroup.procs"), procs)
		k.create(k.tasks(rel, "cgroup.procs"), procs)
		k.uses[rel] = u
		return
	}
	u.swap = k.create(k.memory(rel, "memory.swap.current"), "0\n")
	k.uses[rel] = u
	for _, f := range []struct{ name, text string }{
		{"cgroup.procs", ""}, {"cgroup.kill", ""}, {"cgroup.events", "populated 1\nfrozen 0\n"}, {"memory.max", "max\n"},
	} {
		k.create(k.memory(rel, f.name), f.text)
	}
}

// flatten switches memory.use_hierarchy off for a cgroup, as it is before linux 5.11 without systemd.
func (k *kernel) flatten(rel string) { k.create(k.memory(rel, "memory.use_hierarchy"), "0\n") }

// flatOf switches memory.use_hierarchy off on one of four nodes with cgroup v1. It has dice of its own.
func flatOf(w *World, seed uint64) {
	d := diceOf(seed, 53)
	if w.flat = w.v1 && d.oneIn(4); w.flat {
		w.flatten("/")
		w.flatten(podsCgroup)
	}
}

// somePID is a process that no machine has: pid_max is lower.
const somePID = "4194304\n"

// mkdir makes a cgroup and those above it.
func (k *kernel) mkdir(rel string) {
	dir := filepath.Join(k.root, k.memory(rel, ""))
	if _, err := os.Stat(dir); err == nil || rel == "/" {
		return
	}
	k.mkdir(filepath.Dir(rel))
	k.mkdirAll(k.memory(rel, ""))
	k.mkdirAll(k.tasks(rel, ""))
	k.waker.note(rel, false)
}

// rmdir removes a cgroup and those below it. Who still has their files open reads an error from a kernel, and zeros here.
func (k *kernel) rmdir(rel string) {
	isBelow := func(of string) bool { return of == rel || strings.HasPrefix(of, rel+"/") }
	for of := range k.uses {
		if isBelow(of) {
			k.writeUse(of, [4]int64{})
		}
	}
	for _, dir := range []string{k.memory(rel, "") + "/", k.tasks(rel, "") + "/"} {
		if err := os.RemoveAll(filepath.Join(k.root, dir)); err != nil {
			k.tb.Fatal(err)
		}
		for name, f := range k.files {
			if strings.HasPrefix(name, dir) {
				_ = f.open.Close() // of nil, it does nothing
				delete(k.files, name)
			}
		}
	}
	maps.DeleteFunc(k.uses, func(of string, _ uses) bool { return isBelow(of) })
	k.waker.note(rel, true)
}

// mkdirAll makes a directory and those above it.
func (k *kernel) mkdirAll(name string) {
	if err := os.MkdirAll(filepath.Join(k.root, name), 0o755); err != nil {
		k.tb.Fatal(err)
	}
}

// create creates a file.
func (k *kernel) create(name, text string) *file {
	f := &file{name: name, text: []byte(text)}
	k.files[name] = f
	if err := f.create(k.root); err != nil {
		k.tb.Fatal(err)
	}
	return f
}

// file is a file of the kernel that is open while its text changes.
type file struct {
	name   string
	text   []byte
	open   *os.File // nil = not yet
	format string   // of the text; "" = it is the one of its creation
	values []int64  // in the text
}

// create creates the file below a root, with the three system calls that it takes.
func (f *file) create(root string) error {
	path := filepath.Join(root, f.name)
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: path, Err: err}
	}
	_, err = unix.Write(fd, f.text)
	return errors.Join(err, unix.Close(fd))
}

// uses are the files of what a cgroup uses.
type uses struct {
	memory, stat, tasks *file
	swap                *file // nil on v1
}

// move moves the kernel to a copy of its files.
func (k *kernel) move(root string) error {
	if err := copyDirs(root, k.root); err != nil {
		return err
	}
	for _, f := range k.files {
		if err := f.create(root); err != nil {
			return err
		}
	}
	k.mu.Lock()
	k.root = root
	k.mu.Unlock()
	k.close()
	return nil
}

// copyDirs copies the directories below one.
func copyDirs(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.MkdirAll(to+strings.TrimPrefix(path, from), 0o755)
	})
}

// close closes every file.
func (k *kernel) close() {
	for _, f := range k.files {
		if f.open != nil {
			_ = f.open.Close()
			f.open = nil
		}
	}
}

// write replaces the text of a file, in place, as the kernel does. Most files change rarely, so a text is formatted only if it does.
func (k *kernel) write(f *file, format string, values ...int64) {
	if f.format == format && slices.Equal(f.values, values) {
		return
	}
	f.format, f.values = format, append(f.values[:0], values...)
	size, text := len(f.text), f.text[:0]
	for _, v := range values {
		before, after, _ := strings.Cut(format, "%d")
		text = strconv.AppendInt(append(text, before...), v, 10)
		format = after
	}
	text = append(text, format...)
	f.text = text
	var err error
	if f.open == nil {
		f.open, err = os.OpenFile(filepath.Join(k.root, f.name), os.O_WRONLY, 0)
	}
	if err == nil {
		_, err = f.open.WriteAt(text, 0)
	}
	if err == nil && len(text) < size {
		err = f.open.Truncate(int64(len(text)))
	}
	if err != nil {
		k.tb.Fatal(err)
	}
}
