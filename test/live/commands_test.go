package live_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// What programs read carries its version, with the service and without it.
func TestCommands(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	large := n.pod(lab.PodSpec{Name: "large", Containers: hog(64 * mib)})
	n.hogs(large)
	n.pod(lab.PodSpec{Name: "small", Containers: one("pause")})
	n.configure(config{})
	look := func(t *testing.T, live bool) {
		n := &node{T: t, lab: n.lab, dir: n.dir}
		for _, command := range []string{"status", "rank"} {
			n.versioned(command)
			if a := n.criguard(n.args(command)...); a.code != 0 || a.err != "" || a.out == "" {
				t.Errorf("%s: exit code %d, stderr %q, stdout %q", command, a.code, a.err, a.out)
			}
		}
		st := ask[guard.Status](n, "status")
		if st.Live != live || st.Pods != 2 || !st.Runtime.Up || available(st, policy.MemoryAvailable) <= 0 {
			t.Errorf("status: %+v", st)
		}
		r := ask[guard.Ranking](n, "rank")
		first := func(p guard.RankedView) bool { return p.Position == 1 && p.Pod == "default/large" && p.Known }
		if r.Live != live || len(r.Pods) != 2 || !slices.ContainsFunc(r.Pods, first) {
			t.Errorf("rank: %+v", r)
		}
		n.until("what both pods use of the disk to be known", func() bool { // containerd samples every 10 s
			r := ask[guard.Ranking](n, "rank", "--signal", policy.NodeFSAvailable.String())
			return r.Signal == policy.NodeFSAvailable && len(r.Pods) == 2 && r.Pods[0].Known && r.Pods[1].Known
		})
	}
	t.Run("without the service", func(t *testing.T) { look(t, false) })
	t.Run("history without the service", func(t *testing.T) {
		unreachable(t, n.criguard(n.args("history")...))
		unreachable(t, n.criguard(n.args("history", "-o", "json")...))
	})
	n.startWith(2)
	t.Run("with the service", func(t *testing.T) { look(t, true) })
	t.Run("history with the service", func(t *testing.T) {
		n := &node{T: t, dir: n.dir}
		n.versioned("history")
		if a := n.criguard(n.args("history")...); a.code != 0 || !strings.Contains(a.out, "Nothing has happened yet") {
			t.Errorf("exit code %d, stdout %q", a.code, a.out)
		}
	})
}

// Without a runtime status tells what the kernel shows; rank cannot.
func TestCommandsWithoutRuntime(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	n.endpoint = "unix://" + filepath.Join(n.dir, "nobody.sock")
	n.configure(config{})
	look := func(t *testing.T, live bool) {
		n := &node{T: t, lab: n.lab, dir: n.dir}
		st := ask[guard.Status](n, "status")
		if st.Live != live || st.Runtime.Up || st.Runtime.Error == "" || available(st, policy.MemoryAvailable) <= 0 {
			t.Errorf("status: %+v", st)
		}
		if a := n.criguard(n.args("status")...); a.code != 0 || !strings.Contains(a.out, "no runtime answers") {
			t.Errorf("status: exit code %d, stdout %q, stderr %q", a.code, a.out, a.err)
		}
		unreachable(t, n.criguard(n.args("rank")...))
	}
	t.Run("without the service", func(t *testing.T) { look(t, false) })
	n.start()
	t.Run("with the service", func(t *testing.T) { look(t, true) })
}

// Who may not ask the service is told so, not that there is none.
func TestCommandsDenied(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	n.start()
	if err := os.Chmod(filepath.Dir(built.criguard), 0o755); err != nil { // for another user to run it
		t.Fatal(err)
	}
	nobody := func(code int, says string, args ...string) {
		cmd := exec.Command(built.criguard, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), says) {
			t.Errorf("%v: %v, want exit code %d and %q\n%s", args, err, code, says, out)
		}
	}
	for _, command := range []string{"status", "rank", "history", "pause"} {
		nobody(3, "closed to this user: connect: permission denied\nhint: ask as root, or as a member of the group criguard", command, "--run-dir", n.dir)
	}
	nobody(2, "permission denied\nhint: are you root?", "run", "--run-dir", "/run/criguard-of-nobody")
}

// Wrong usage is told apart from trouble.
func TestCommandsMisused(t *testing.T) {
	n := &node{T: t, dir: t.TempDir()}
	for _, args := range [][]string{
		{"statsu"}, {"status", "-o", "yaml"}, {"rank", "--signal", "memory"}, {"status", "extra"}, {"status", "--config", filepath.Join(n.dir, "missing.toml"), "--run-dir", n.dir},
	} {
		if a := n.criguard(args...); a.code != 2 || a.out != "" || !strings.HasPrefix(a.err, "criguard: ") {
			t.Errorf("criguard %v: exit code %d, stdout %q, stderr %q, want 2, nothing and why", args, a.code, a.out, a.err)
		}
	}
}

// versioned makes sure that a command prints one JSON value with its version.
func (n *node) versioned(command string) {
	n.Helper()
	a := n.criguard(n.args(command, "-o", "json")...)
	var v struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal([]byte(a.out), &v); err != nil || a.code != 0 || v.APIVersion != guard.APIVersion {
		n.Errorf("%s: exit code %d, apiVersion %q, %v: %s", command, a.code, v.APIVersion, err, a.err)
	}
}

// unreachable makes sure that a command failed for want of whom it asks, and says
// what to do.
func unreachable(t *testing.T, a answer) {
	t.Helper()
	if a.code != 3 || a.out != "" || !strings.Contains(a.err, "\nhint: ") {
		t.Errorf("exit code %d, stdout %q, stderr %q, want 3, nothing, and a hint", a.code, a.out, a.err)
	}
}
