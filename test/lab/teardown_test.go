package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/need"
)

// closeClean closes a lab and checks that nothing is left.
func closeClean(t *testing.T, l *Lab) {
	t.Helper()
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	left, err := l.Leftovers()
	if err != nil {
		t.Error(err)
	}
	for _, thing := range left {
		t.Errorf("left behind: %s", thing)
	}
	if _, err := os.Stat(l.claim.file.Name()); err == nil {
		t.Error("left behind: its registration")
	}
}

// TestClose closes labs in difficult states.
func TestClose(t *testing.T) {
	for _, test := range []struct {
		name, runtime string
		options       Options
		before        func(t *testing.T, l *Lab, pod *RunningPod)
	}{
		{name: "running", runtime: Containerd1, options: Options{PodsMemoryLimit: 1 << 30}},
		{name: "tmpfs in use", runtime: Containerd1, options: Options{NodeFSBytes: 128 << 20, Dir: t.TempDir()}, before: func(t *testing.T, l *Lab, _ *RunningPod) {
			f, err := os.Open(l.ContainerdRoot())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
		}},
		{name: "containerd dead", runtime: Containerd2, before: func(t *testing.T, l *Lab, _ *RunningPod) {
			if err := l.KillContainerd(); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "containerd and shim paused", runtime: Containerd2, before: func(t *testing.T, l *Lab, pod *RunningPod) {
			if err := l.PauseShim(pod.SandboxID); err != nil {
				t.Fatal(err)
			}
			if err := l.PauseContainerd(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			need.Root(t)
			test.options.Containerd = test.runtime
			l, err := Start(t.Context(), test.options)
			if err != nil {
				t.Fatal(err)
			}
			defer closeClean(t, l)
			pod, err := l.RunPod(t.Context(), PodSpec{Name: "stays", Containers: []ContainerSpec{
				{Name: "fork", Args: []string{"fork", "-count", "10"}},
				{Name: "ignore", Args: []string{"ignore-term"}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			kinds := kindsOf(t, l.claim.record)
			for _, kind := range []string{"process", "mount", "cgroup", "directory"} {
				if kinds[kind] == 0 {
					t.Errorf("a running lab shows no %s: %v", kind, kinds)
				}
			}
			if limit := test.options.PodsMemoryLimit; limit > 0 {
				if got := limitOf(t, l); got != limit {
					t.Errorf("memory limit %d", got)
				}
			}
			if test.before != nil {
				test.before(t, l, pod)
			}
		})
	}
}

func limitOf(t *testing.T, l *Lab) int64 {
	t.Helper()
	name := "memory.limit_in_bytes"
	if l.cgroups.main().v2 {
		name = "memory.max"
	}
	limit, err := readInt(filepath.Join(l.MemoryCgroupDir(l.PodsCgroup()), name))
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// kindsOf counts what exists of a lab, by kind.
func kindsOf(t *testing.T, r record) map[string]int {
	t.Helper()
	left, err := leftovers(r)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, thing := range left {
		kind, _, _ := strings.Cut(thing, " ")
		kinds[kind]++
	}
	return kinds
}

// crashEnv makes the test binary start a lab and die.
const crashEnv = "CRIGUARD_LAB_TEST_CRASH"

func crash() {
	l, err := Start(context.Background(), Options{Containerd: Containerd1, ImageFSBytes: 128 << 20})
	if err == nil {
		_, err = l.RunPod(context.Background(), PodSpec{Name: "orphan", Containers: []ContainerSpec{{Name: "c"}}})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(l.claim.record)
	_ = os.Stdout.Sync()
	process, _ := os.FindProcess(os.Getpid())
	_ = process.Kill()
	select {}
}

func TestSweep(t *testing.T) {
	need.Root(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), crashEnv+"=1")
	child.Stderr = os.Stderr
	out, err := child.Output()
	var orphan record
	if json.Unmarshal(out, &orphan) != nil || err == nil {
		t.Fatalf("the owner did not die as planned: %v, %q", err, out)
	}
	if kinds := kindsOf(t, orphan); kinds["process"] < 4 || kinds["mount"] < 2 {
		t.Errorf("the owner took its lab with it: %v", kinds)
	}
	if err := Sweep(); err != nil {
		t.Fatal(err)
	}
	left, err := leftovers(orphan)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestUnmountBelow(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	for _, below := range []string{"a", "a/b", "c d"} {
		if err := mountTmpfs(filepath.Join(dir, below), 1<<20, 0); err != nil {
			t.Fatal(err)
		}
	}
	if points, err := mountsBelow(dir); len(points) != 3 || err != nil {
		t.Errorf("got %v, %v", points, err)
	}
	if err := unmountBelow(dir); err != nil {
		t.Error(err)
	}
	if points, err := mountsBelow(dir); len(points) != 0 || err != nil {
		t.Errorf("got %v, %v", points, err)
	}
}
