package inventory

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/test/need"
)

// criguard recognizes its own pod by its cgroup or, if a container's namespaces hide that, by the process
// lists of the pods' cgroups.
func TestFindSelf(t *testing.T) {
	const inside = "CRIGUARD_TEST_CGROUP"
	need.Root(t)
	need.Cgroup(t)
	layout, err := cgroup.Detect("/sys/fs/cgroup", "/proc")
	if err != nil {
		t.Fatal(err)
	}
	pod := func(rel string) *Pod {
		return &Pod{Containers: []Container{{}, {Cgroup: "/"}, {Cgroup: rel}}}
	}
	if rel := os.Getenv(inside); rel != "" {
		self := findOwnPod(layout, "/proc")
		other, own := pod(path.Join(path.Dir(rel), "c2")), pod(rel)
		for range 2 {
			if self.contains(other) || !self.contains(own) {
				t.Errorf("as process %d: in another pod %v, in its own %v, in %q", os.Getpid(), self.contains(other), self.contains(own), self.cgroup)
			}
		}
		return
	}
	top := fmt.Sprintf("/criguard-test-%d-self", os.Getpid())
	dirs := []string{top, top + "/c1", top + "/c2", top + "/c1/container"} // crun nests
	for _, rel := range dirs {
		if err := os.Mkdir(layout.Dir("memory", rel), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for i := len(dirs) - 1; i >= 0; i-- {
			dir, deadline := layout.Dir("memory", dirs[i]), time.Now().Add(time.Minute)
			for err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist); err = os.Remove(dir) {
				if time.Now().After(deadline) {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
	for name, enter := range map[string]string{
		"on the node":               "",
		"its own cgroup namespace":  "unshare --cgroup",
		"its own PID namespace":     "unshare --pid --fork",
		"namespaces of its own":     "unshare --cgroup --pid --fork",
		"and a procfs that is, too": "unshare --cgroup --pid --fork --mount-proc",
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh", "-c", `echo $$ > "$0" && exec `+enter+` "$@"`,
				filepath.Join(layout.Dir("memory", top+"/c1/container"), "cgroup.procs"), os.Args[0], "-test.run=^TestFindSelf$", "-test.v")
			cmd.Env = append(os.Environ(), inside+"="+top+"/c1")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFindSelf ") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
