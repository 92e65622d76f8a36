package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/leak"
)

// nestingDepth is deeper than any runtime nests. With names of 200 bytes, the path exceeds PATH_MAX.
const nestingDepth = 80

// nest creates a chain of cgroups below dir. It returns the directory of the deepest one, whose path
// the kernel may not accept.
func nest(t *testing.T, dir, name string) string {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	roots := []*os.Root{root}
	defer func() {
		for _, r := range roots {
			_ = r.Close()
		}
	}()
	reached := dir
	for range nestingDepth {
		at := roots[len(roots)-1]
		if err := at.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot(name)
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, next)
		reached = filepath.Join(reached, name)
	}
	t.Cleanup(func() {
		// Remove them bottom up, each from its parent: the full path may be too long.
		at, err := os.OpenRoot(dir)
		if err != nil {
			return
		}
		chain := []*os.Root{at}
		for range nestingDepth - 1 {
			next, err := chain[len(chain)-1].OpenRoot(name)
			if err != nil {
				break
			}
			chain = append(chain, next)
		}
		for i := len(chain) - 1; i >= 0; i-- {
			await(t, "removal of a nested cgroup", func() bool {
				_ = chain[i].Remove(name)
				_, err := chain[i].Stat(name)
				return os.IsNotExist(err)
			})
			_ = chain[i].Close()
		}
	})
	return reached
}

// Kill reaches deeply nested cgroups.
func TestKillNestedDeeply(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		rel := ownCgroup(t, l)
		deepest := nest(t, l.dir(rel), "n")
		top, deep := startIn(t, "sleep", l.dir(rel)), startIn(t, "sleep", deepest)
		if populated, err := l.Populated(rel); !populated || err != nil {
			t.Fatalf("populated: %t, %v", populated, err)
		}
		if pids, err := l.Procs(rel); len(pids) != 2 || err != nil {
			t.Errorf("processes %v, %v; want 2 of them", pids, err)
		}
		if n, err := l.Kill(rel); n < 1 || n > 2 || err != nil {
			t.Errorf("killed %d, %v; want both", n, err)
		}
		top.killed(t)
		deep.killed(t)
		await(t, "an empty cgroup", func() bool {
			populated, err := l.Populated(rel)
			return !populated && err == nil
		})
	})
}

// Procs finds processes below a path longer than PATH_MAX.
func TestProcsBeyondPathMax(t *testing.T) {
	hierarchies(t, func(t *testing.T, l Layout) {
		rel := ownCgroup(t, l)
		name := strings.Repeat("n", 200)
		nest(t, l.dir(rel), name)
		if pids, err := l.Procs(rel); len(pids) != 0 || err != nil {
			t.Errorf("processes %v, %v; want none", pids, err)
		}
		c := startIn(t, "sleep", filepath.Join(l.dir(rel), name))
		if n, err := l.Kill(rel); n != 1 || err != nil {
			t.Errorf("killed %d, %v", n, err)
		}
		c.killed(t)
	})
}

// Kill writes to cgroup.kill before it counts, so a failing count does not prevent the kill.
func TestKillWritesBeforeItCounts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"cgroup.controllers": "memory\n", "a/cgroup.events": "populated 1\nfrozen 0\n", "a/cgroup.kill": "",
	})
	// Without cgroup.procs, the count fails.
	l, err := Detect(Root(dir), Proc(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := l.Kill("/a"); n != 1 {
		t.Errorf("killed %d, %v; want that at least one was hit", n, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "a/cgroup.kill")); string(b) != "1" || err != nil {
		t.Errorf("cgroup.kill holds %q, %v; want 1", b, err)
	}
}

// A walk keeps few descriptors open, however deep and wide the tree is.
func TestWalkKeepsFewDescriptors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"memory/cgroup.procs": "1\n"})
	at := "memory/a"
	for range nestingDepth + 1 {
		write(t, dir, map[string]string{at + "/cgroup.procs": ""})
		at += "/a"
	}
	l, err := Detect(Root(dir), Proc(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := l.openTree("/a")
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	before, most := len(leak.OpenDescriptors()), 0
	visited := 0
	if err := tr.walk(func(*os.File) error {
		visited++
		most = max(most, len(leak.OpenDescriptors())-before)
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	if most > 4 || visited != nestingDepth+1 {
		t.Errorf("%d descriptors at once, %d cgroups visited", most, visited)
	}
}
