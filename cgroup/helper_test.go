package cgroup

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/test/need"
)

// helperVar selects what a process of this test binary does instead of running tests.
const helperVar = "CRIGUARD_TEST_HELPER"

// runHelper waits for a line on standard input, which arrives once the process is in its cgroup. Then
// it does its task.
func runHelper(name string) int {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return 1
	}
	kind, arg, _ := strings.Cut(name, ":")
	switch kind {
	case "sleep":
	case "allocate": // bytes
		n, err := strconv.Atoi(arg)
		if err != nil {
			return 2
		}
		memory := make([]byte, n)
		for i := 0; i < len(memory); i += os.Getpagesize() {
			memory[i] = 1
		}
		fmt.Println("done")
		defer func() { memory[0]++ }()
	case "fork": // children that fork children
		cmd := exec.Command("/bin/sh", "-c", "while :; do /bin/true & done")
		fmt.Println("done")
		_ = cmd.Run()
	case "leaderless":
		endLeader()
	default:
		return 2
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test closes it or ends
	return 0
}

// endLeader ends the first thread of this process. The process continues in its other threads until its input ends. No
// goroutine may wait for the input in the first thread, or this one would never run there.
func endLeader() {
	await := func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go await() // in another thread: this one is locked
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	go endLeader()
	await()
}

// testTree returns the layout of a captured tree.
func testTree(t testing.TB, name string) Layout {
	t.Helper()
	l, err := Detect(Root(filepath.Join("testdata", name, "sys/fs/cgroup")), Proc(filepath.Join("testdata", name, "proc")))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// realV1 returns this machine's layout if it has the v1 memory controller, and skips the test
// otherwise.
func realV1(t testing.TB) Layout {
	t.Helper()
	need.Root(t)
	need.CgroupV1(t)
	l, err := Detect("/sys/fs/cgroup", "/proc")
	if err != nil || l.tree != "memory" {
		t.Fatalf("layout %+v: %v", l, err)
	}
	return l
}

// realV2 returns this machine's v2 hierarchy, with any controllers.
func realV2(t testing.TB) Layout {
	t.Helper()
	need.Root(t)
	need.CgroupV2(t)
	l, err := Detect("/sys/fs/cgroup", "/proc")
	if err != nil || l.unified == "" {
		t.Fatalf("layout %+v: %v", l, err)
	}
	return Layout{Version: V2, root: l.unified, proc: l.proc, unified: l.unified, released: l.released}
}

// ownCgroup creates a cgroup for one test in the hierarchies of these controllers. It is removed with
// its descendants after the test.
func ownCgroup(t testing.TB, l Layout, controllers ...string) string {
	t.Helper()
	rel := fmt.Sprintf("/criguard-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
	for _, c := range append(controllers, l.tree) {
		makeCgroup(t, l.Dir(c, rel))
	}
	return rel
}

func makeCgroup(t testing.TB, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// It only holds descendants of this process.
		await(t, "removal of "+dir, func() bool {
			if root, err := os.Open(dir); err == nil {
				t := &tree{root}
				pids, _ := t.procs()
				for _, pid := range pids {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
				t.close()
			}
			return rmdirAll(dir)
		})
	})
}

func rmdirAll(dir string) bool {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			rmdirAll(filepath.Join(dir, e.Name()))
		}
	}
	err := unix.Rmdir(dir)
	return err == nil || err == unix.ENOENT
}

// await waits until a condition is true, and fails the test after 10 s.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen within a minute", what)
		}
		time.Sleep(time.Millisecond)
	}
}

type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	ended chan struct{}
}

// startIn starts a helper in cgroups, where it waits for run.
func startIn(t testing.TB, helper string, dirs ...string) *child {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), helperVar+"="+helper)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, stdin: stdin, out: bufio.NewReader(stdout), ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-c.ended:
		case <-time.After(time.Minute):
			t.Errorf("process %d does not end", c.pid())
		}
	})
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// run lets the helper start its task.
func (c *child) run(t testing.TB) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, "go\n"); err != nil {
		t.Fatal(err)
	}
}

// done waits until the helper reports that it is done.
func (c *child) done(t testing.TB) {
	t.Helper()
	if line, err := c.out.ReadString('\n'); line != "done\n" {
		t.Fatalf("helper said %q: %v", line, err)
	}
}

// killed waits until SIGKILL has ended the helper.
func (c *child) killed(t testing.TB) {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		t.Fatalf("process %d was not killed", c.pid())
	}
	if got := c.cmd.ProcessState.String(); got != "signal: killed" {
		t.Errorf("process %d ended with %q, want SIGKILL", c.pid(), got)
	}
}

// alive reports whether the helper is still running.
func (c *child) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return unix.Kill(c.pid(), 0) == nil
	}
}

// isolated re-runs the calling test in a separate process, for tests that would affect this one. It
// returns true in that process.
func isolated(t *testing.T) bool {
	t.Helper()
	const isolatedVar = "CRIGUARD_TEST_ISOLATED"
	if os.Getenv(isolatedVar) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), isolatedVar+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in a process of its own: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") { // a skip would show in this output
		t.Fatalf("it did not run in a process of its own:\n%s", out)
	}
	return false
}
