// Package nodetest makes nodes for tests: procfs, sysfs and configuration of a fake one, cgroups of a real one,
// and containers and images on a fake runtime.
package nodetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// Files creates files below a new directory and returns the directory.
func Files(tb testing.TB, files map[string]string) string {
	tb.Helper()
	root := tb.TempDir()
	Write(tb, root, files)
	return root
}

// Write writes files below a directory, and creates the directories between.
func Write(tb testing.TB, root string, files map[string]string) {
	tb.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// Await waits until is returns true.
func Await(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("timeout: %s", what)
		}
	}
}

// Stall returns a PSI file with this total for some and all tasks, in microseconds.
func Stall(total int) string {
	const line = " avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n"
	return fmt.Sprintf("some"+line+"full"+line, total, total)
}

// Proc creates the procfs of a node with this much memory, in bytes.
func Proc(tb testing.TB, memory int64) string {
	tb.Helper()
	return Files(tb, map[string]string{
		"meminfo":                             fmt.Sprintf("MemTotal: %d kB\nMemFree: 1000 kB\nMemAvailable: 2000 kB\nInactive(file): 500 kB\n", memory>>10),
		"loadavg":                             "0.00 0.00 0.00 1/100 1000\n",
		"sys/kernel/pid_max":                  "4194304\n",
		"sys/kernel/random/boot_id":           "3f7e1d2c-0000-0000-0000-000000000000\n",
		"pressure/memory":                     Stall(0),
		"pressure/io":                         Stall(0),
		"self/cgroup":                         "1:memory:/\n0::/\n",
		fmt.Sprintf("%d/cgroup", os.Getpid()): "1:memory:/\n0::/\n",
	})
}

// SysV1 creates a sysfs with cgroup v1 in which two cgroups have a memory limit.
func SysV1(tb testing.TB) string {
	tb.Helper()
	files := map[string]string{}
	for rel, limit := range map[string]string{"": "9223372036854771712", "kubepods/": "1073741824", "other/": "536870912"} {
		dir := "fs/cgroup/memory/" + rel
		files[dir+"cgroup.procs"] = ""
		files[dir+"memory.usage_in_bytes"] = "1048576\n"
		files[dir+"memory.limit_in_bytes"] = limit + "\n"
		files[dir+"memory.stat"] = "inactive_file 0\ntotal_inactive_file 0\n"
	}
	return Files(tb, files)
}

// SysV2 creates a sysfs with cgroup v2 in which a container's cgroup is populated.
func SysV2(tb testing.TB) string {
	tb.Helper()
	return Files(tb, map[string]string{
		"fs/cgroup/cgroup.controllers":             "memory pids\n",
		"fs/cgroup/kubepods/pod1/c1/cgroup.procs":  "",
		"fs/cgroup/kubepods/pod1/c1/cgroup.kill":   "",
		"fs/cgroup/kubepods/pod1/c1/cgroup.events": "populated 1\nfrozen 0\n",
	})
}

// AnyDisk are lines of a configuration whose thresholds no real disk meets, however full it is. Its thresholds are still in force.
const AnyDisk = "eviction.hard.'nodefs.available' = '1Mi'\neviction.hard.'nodefs.inodesFree' = '1'\n" +
	"eviction.hard.'imagefs.available' = '1Mi'\neviction.hard.'imagefs.inodesFree' = '1'\n"

// Config returns a configuration for a fake node of the test's own, with these lines at its end.
func Config(tb testing.TB, lines ...string) string {
	tb.Helper()
	base := fmt.Sprintf("runtime.timeout = '1m'\nnode.proc = %q\nnode.sys = %q\n", Proc(tb, 4<<30), SysV1(tb))
	base += fmt.Sprintf("node.root_dir = %q\nnode.pod_log_dir = %q\n", tb.TempDir(), tb.TempDir())
	return base + strings.Join(lines, "\n") + "\n"
}

// AddDeadContainers adds two pods, one with three and one with one dead container of the same name.
func AddDeadContainers(s *critest.Server) {
	old := time.Now().Add(-10 * time.Minute)
	for _, attempts := range []uint32{3, 1} {
		pod := critest.PodSpec{CreatedAt: old}
		for i := range attempts {
			pod.Containers = append(pod.Containers, critest.ContainerSpec{Name: "main", Attempt: i, State: cri.Exited})
		}
		s.AddPod(pod)
	}
}

// AddUnusedImage adds an image of one byte that no container uses.
func AddUnusedImage(s *critest.Server) {
	s.AddImage(critest.ImageSpec{Tags: []string{"registry.example.com/app:1"}, Size: 1})
}
