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
)

// helperVar names what a process of this test binary is to do instead of testing.
const helperVar = "CRIGUARD_TEST_HELPER"

// runHelper waits for a line on standard input, by which time it is in its cgroup,
// and does what it is there for.
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
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		endLeader()
	default:
		return 2
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test closes it or ends
	return 0
}

// endLeader ends the first thread of this process, which goes on in the others.
func endLeader() {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	go endLeader() // in another thread: this one is taken
	select {}
}

// testTree is a layout over a captured tree.
func testTree(t testing.TB, name string) Layout {
	t.Helper()
	l, err := Detect(Root(filepath.Join("testdata", name, "sys/fs/cgroup")), Proc(filepath.Join("testdata", name, "proc")))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// realV1 is this machine's layout, where it has the v1 memory controller.
func realV1(t testing.TB) Layout {
	t.Helper()
	l, err := Detect("/sys/fs/cgroup", "/proc")
	if err != nil || l.tree != "memory" || os.Geteuid() != 0 {
		t.Skip("needs root, and needs cgroup v1 with its memory controller (linux below 6.11, or CONFIG_MEMCG_V1)")
	}
	return l
}

// realV2 is this machine's v2 hierarchy, whatever controllers it has.
func realV2(t testing.TB) Layout {
	t.Helper()
	l, err := Detect("/sys/fs/cgroup", "/proc")
	if err != nil || l.unified == "" || os.Geteuid() != 0 {
		t.Skip("needs root, and needs cgroup v2 mounted (linux 4.5)")
	}
	return Layout{Version: V2, root: l.unified, proc: l.proc, unified: l.unified}
}

// ownCgroup makes a cgroup for one test, in the hierarchies of these controllers,
// and removes it with all that is below it.
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
		// What is in it are children of this process and theirs.
		await(t, "removal of "+dir, func() bool {
			t := &tree{}
			if root, err := os.OpenRoot(dir); err == nil {
				t.root = root
				pids, _ := t.procs()
				for _, pid := range pids {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
				t.close()
			}
			return removeTree(dir)
		})
	})
}

func removeTree(dir string) bool {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeTree(filepath.Join(dir, e.Name()))
		}
	}
	err := unix.Rmdir(dir)
	return err == nil || err == unix.ENOENT
}

// await waits for a condition that must come.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen within a minute", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// child is a helper process.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	ended chan struct{}
}

// startIn starts a helper in cgroups, which waits there.
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

// run lets the helper begin.
func (c *child) run(t testing.TB) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, "go\n"); err != nil {
		t.Fatal(err)
	}
}

// done waits until the helper says that it is done.
func (c *child) done(t testing.TB) {
	t.Helper()
	if line, err := c.out.ReadString('\n'); line != "done\n" {
		t.Fatalf("helper said %q: %v", line, err)
	}
}

// killed waits for the helper's end by SIGKILL.
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

// alive says that the helper has not ended.
func (c *child) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return unix.Kill(c.pid(), 0) == nil
	}
}

// isolated runs the calling test in a process of its own, for what would change
// this one; it is true there.
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
	if !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") { // what excuses it is said here
		t.Fatalf("it did not run in a process of its own:\n%s", out)
	}
	return false
}
