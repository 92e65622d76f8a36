// Package need skips tests on machines that lack what they need. Each function first checks that the machine
// does lack it. Tests skip in no other way, which the linter enforces.
package need

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// TB is the part of testing.TB that this package uses. It keeps the testing package out of the demo.
type TB interface {
	Helper()
	Name() string
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// that skips the test unless the machine has what is named.
func that(t TB, has bool, format string, args ...any) {
	t.Helper()
	if !has {
		t.Skipf("needs "+format, args...)
	}
}

// Root needs the user root.
func Root(t TB) { t.Helper(); that(t, os.Geteuid() == 0, "root") }

// Linux needs this release of the kernel or a later one.
func Linux(t TB, major, minor int) {
	t.Helper()
	var has [2]int
	_, _ = fmt.Sscanf(read("/proc/sys/kernel/osrelease"), "%d.%d", &has[0], &has[1])
	that(t, has[0] > major || has[0] == major && has[1] >= minor, "linux %d.%d", major, minor)
}

// SysAdmin needs CAP_SYS_ADMIN, without which mounts fail and cgroups are read only.
func SysAdmin(t TB) { t.Helper(); that(t, capable(unix.CAP_SYS_ADMIN), "CAP_SYS_ADMIN") }

// SysResource needs CAP_SYS_RESOURCE, for PSI triggers below linux 6.4.
func SysResource(t TB) { t.Helper(); that(t, capable(unix.CAP_SYS_RESOURCE), "CAP_SYS_RESOURCE") }

// CgroupV1 needs the memory controller on cgroup v1.
func CgroupV1(t TB) {
	t.Helper()
	that(t, exists("/sys/fs/cgroup/memory/memory.usage_in_bytes"), "the memory controller on cgroup v1")
}

// CgroupV2 needs a mounted cgroup v2 hierarchy, with any controllers.
func CgroupV2(t TB) {
	t.Helper()
	that(t, strings.Contains(read("/proc/self/mounts"), " cgroup2 "), "cgroup v2")
}

// Cgroup needs cgroup v1 or v2 mounted at /sys/fs/cgroup.
func Cgroup(t TB) {
	t.Helper()
	entries, _ := os.ReadDir("/sys/fs/cgroup")
	that(t, len(entries) > 0, "cgroups at /sys/fs/cgroup")
}

// PSI needs pressure stall information (linux 4.20 with psi=1).
func PSI(t TB) { t.Helper(); that(t, exists("/proc/pressure/memory"), "PSI") }

// File needs a file or directory of the kernel.
func File(t TB, path string) { t.Helper(); that(t, exists(path), "%s", path) }

// Program needs a program and returns its path.
func Program(t TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	that(t, err == nil, "the program %s", name)
	return path
}

// Mount mounts a filesystem until the test ends. It needs CAP_SYS_ADMIN.
func Mount(t interface {
	TB
	Cleanup(f func())
}, source, target, kind string, flags uintptr, options string) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		SysAdmin(t)
		t.Fatalf("mount %s: %v", target, err)
	}
	// Lazily: a child process of another test may hold one of its files open until exec.
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// read returns the content of a file, or "" if it cannot be read.
func read(path string) string { b, _ := os.ReadFile(path); return string(b) }

// capable reports whether the process has an effective capability (proc_pid_status(5)).
func capable(capability int) bool {
	_, rest, _ := strings.Cut(read("/proc/self/status"), "\nCapEff:\t")
	hex, _, _ := strings.Cut(rest, "\n")
	has, _ := strconv.ParseUint(hex, 16, 64)
	return has>>capability&1 == 1
}
