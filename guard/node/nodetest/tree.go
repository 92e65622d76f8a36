package nodetest

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/test/need"
)

// Tree is a pods cgroup of the test's own among the real cgroups. Its methods take cgroups relative to the
// hierarchy and fail the test on an error.
type Tree struct {
	Layout cgroup.Layout
	Root   string // the pods cgroup
	tb     testing.TB
}

// NewTree creates a pods cgroup with one QoS class below it, and removes it when the test ends.
func NewTree(tb testing.TB) *Tree {
	tb.Helper()
	need.Root(tb)
	need.Cgroup(tb)
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		tb.Fatal(err)
	}
	top := fmt.Sprintf("/criguard-test-%d-index-%s", os.Getpid(), strings.ReplaceAll(tb.Name(), "/", "-"))
	t := &Tree{Layout: layout, Root: top + "/kubepods", tb: tb}
	tb.Cleanup(func() { t.RemoveAll(top) })
	t.Mkdir(t.Root, t.Root+"/besteffort")
	return t
}

// Dir returns the directory of a cgroup.
func (t *Tree) Dir(rel string) string { return t.Layout.Dir("memory", rel) }

// Mkdir creates cgroups and their parents. It skips the test if cgroups are read only.
func (t *Tree) Mkdir(rels ...string) {
	t.tb.Helper()
	for _, rel := range rels {
		if err := os.MkdirAll(t.Dir(rel), 0o755); err != nil {
			need.SysAdmin(t.tb)
			t.tb.Fatal(err)
		}
	}
}

// RemoveAll removes a cgroup and everything below it. A killed process keeps a cgroup busy for a moment.
func (t *Tree) RemoveAll(rel string) {
	t.tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		names, err := t.Layout.Children(rel)
		if err != nil {
			return
		}
		for _, name := range names {
			t.RemoveAll(path.Join(rel, name))
		}
		if err := os.Remove(t.Dir(rel)); err == nil || os.IsNotExist(err) {
			return
		} else if time.Now().After(deadline) {
			t.tb.Fatal(err)
		}
	}
}

// Process starts a process in a cgroup, and returns a function that ends it.
func (t *Tree) Process(rel string) (end func()) {
	t.tb.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.tb.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.tb.Cleanup(end)
	if err := os.WriteFile(filepath.Join(t.Dir(rel), "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
		t.tb.Fatal(err)
	}
	return end
}
