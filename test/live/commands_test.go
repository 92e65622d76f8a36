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

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// JSON output carries its version, with and without the service.
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
			if a := n.criguard(n.args(command)...); a.Code != 0 || a.Err != "" || a.Out == "" {
				t.Errorf("%s: exit code %d, stderr %q, stdout %q", command, a.Code, a.Err, a.Out)
			}
		}
		st := ask[api.Status](n, "status")
		if st.Live != live || st.Pods != 2 || !st.Runtime.Up || available(st, policy.MemoryAvailable) <= 0 {
			t.Errorf("status: %+v", st)
		}
		r := ask[api.Ranking](n, "rank")
		first := func(p api.RankedView) bool { return p.Position == 1 && p.Pod == "default/large" && p.Known }
		if r.Live != live || len(r.Pods) != 2 || !slices.ContainsFunc(r.Pods, first) {
			t.Errorf("rank: %+v", r)
		}
		n.until("what both pods use of the disk to be known", func() bool { // containerd samples every 10 s
			r := ask[api.Ranking](n, "rank", "--signal", policy.NodeFSAvailable.String())
			return r.Signal == policy.NodeFSAvailable && len(r.Pods) == 2 && r.Pods[0].Known && r.Pods[1].Known
		})
	}
	t.Run("without the service", func(t *testing.T) { look(t, false) })
	t.Run("history without the service", func(t *testing.T) {
		unreachable(t, n.criguard(n.args("history")...))
		a := n.criguard(n.args("history", "-o", "json")...)
		var e api.Error
		if err := json.Unmarshal([]byte(a.Out), &e); err != nil || a.Code != 3 || e.Error == "" || e.Hint == "" || a.Err != "" {
			t.Errorf("exit code %d, stdout %q, stderr %q, want 3 and an error in JSON", a.Code, a.Out, a.Err)
		}
	})
	n.startWith(2)
	t.Run("with the service", func(t *testing.T) { look(t, true) })
	t.Run("history with the service", func(t *testing.T) {
		n := &node{T: t, dir: n.dir}
		n.versioned("history")
		if a := n.criguard(n.args("history")...); a.Code != 0 || !strings.Contains(a.Out, "The history has no pass") {
			t.Errorf("exit code %d, stdout %q", a.Code, a.Out)
		}
	})
}

// Without a runtime, status shows the kernel's signals and exits with 3; rank fails.
func TestCommandsWithoutRuntime(t *testing.T) {
	n := newNode(t, lab.Containerd1)
	n.endpoint = "unix://" + filepath.Join(n.dir, "nobody.sock")
	n.configure(config{})
	look := func(t *testing.T, live bool) {
		n := &node{T: t, lab: n.lab, dir: n.dir}
		st := ask[api.Status](n, "status")
		if st.Live != live || st.Runtime.Up || st.Runtime.Error == "" || st.Runtime.ListedAt != nil || available(st, policy.MemoryAvailable) <= 0 {
			t.Errorf("status: %+v", st)
		}
		if a := n.criguard(n.args("status")...); a.Code != 3 || !strings.Contains(a.Out, "no runtime answers") {
			t.Errorf("status: exit code %d, stdout %q, stderr %q", a.Code, a.Out, a.Err)
		}
		unreachable(t, n.criguard(n.args("rank")...))
	}
	t.Run("without the service", func(t *testing.T) { look(t, false) })
	n.start()
	t.Run("with the service", func(t *testing.T) { look(t, true) })
}

// A user without permission gets that error, not the one for a missing service.
func TestCommandsDenied(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	n.start()
	if err := os.Chmod(filepath.Dir(harness.Criguard), 0o755); err != nil { // lets another user run it
		t.Fatal(err)
	}
	nobody := func(code int, says string, args ...string) {
		cmd := exec.Command(harness.Criguard, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), says) {
			t.Errorf("%v: %v, want exit code %d and %q\n%s", args, err, code, says, out)
		}
	}
	for _, command := range []string{"status", "rank", "history", "pause"} {
		nobody(3, "permission denied on the control socket (root or group criguard): connect: permission denied\nhint: run as root or as a member of the group criguard", command, "--run-dir", n.dir)
	}
	nobody(2, "permission denied\nhint: must run as root", "run", "--run-dir", "/run/criguard-of-nobody")
}

// Wrong usage has an exit code of its own.
func TestCommandsMisused(t *testing.T) {
	n := &node{T: t, dir: t.TempDir()}
	for _, args := range [][]string{
		{"statsu"}, {"status", "-o", "yaml"}, {"rank", "--signal", "memory"}, {"status", "extra"}, {"status", "--config", filepath.Join(n.dir, "missing.toml"), "--run-dir", n.dir},
	} {
		if a := n.criguard(args...); a.Code != 2 || a.Out != "" || !strings.HasPrefix(a.Err, "criguard: ") {
			t.Errorf("criguard %v: exit code %d, stdout %q, stderr %q, want 2, nothing and why", args, a.Code, a.Out, a.Err)
		}
	}
}

// versioned checks that a command prints a single JSON value with its version.
func (n *node) versioned(command string) {
	n.Helper()
	a := n.criguard(n.args(command, "-o", "json")...)
	var v struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal([]byte(a.Out), &v); err != nil || a.Code != 0 || v.APIVersion != api.APIVersion {
		n.Errorf("%s: exit code %d, apiVersion %q, %v: %s", command, a.Code, v.APIVersion, err, a.Err)
	}
}

// available returns the amount of a signal in a status.
func available(st api.Status, s policy.Signal) int64 {
	for _, v := range st.Signals {
		if v.Signal == s {
			return v.Available
		}
	}
	return 0
}

// unreachable checks that a command failed because its peer is unreachable, and printed a hint.
func unreachable(t *testing.T, a harness.Answer) {
	t.Helper()
	if a.Code != 3 || a.Out != "" || !strings.Contains(a.Err, "\nhint: ") {
		t.Errorf("exit code %d, stdout %q, stderr %q, want 3, nothing, and a hint", a.Code, a.Out, a.Err)
	}
}
