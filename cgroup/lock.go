package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// LockMemory locks every page of the process into memory when it is first used, so that criguard keeps
// running while the node swaps or thrashes. It calls mlockall(2) with MCL_ONFAULT: without that flag, a
// Go program locks everything that its runtime has reserved, ten times what it uses. Memory and pages of the
// program that are not in use are given back before: a second call, after the start, gives back what only the start has
// used. It returns EPERM or ENOMEM without CAP_IPC_LOCK or a large enough RLIMIT_MEMLOCK, and ErrUnsupported before linux 4.4.
func LockMemory() error {
	_ = unix.Munlockall() // locked pages cannot be given back
	debug.FreeOSMemory()
	dropProgram()
	err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	switch {
	case errors.Is(err, unix.EINVAL):
		return unsupported("lock memory", "linux 4.4 (MCL_ONFAULT)")
	case err != nil:
		return fmt.Errorf("lock memory: %w", err)
	}
	return nil
}

// dropProgram unmaps the pages of the program's file. Those that are still needed are mapped again from the page
// cache when they are used. Without /proc, it does nothing.
func dropProgram() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for _, r := range readOnlyMaps(f, exe) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, r.from, r.to-r.from, unix.MADV_DONTNEED) // a hint: it may fail
	}
}

// addresses are those from one up to, but without, another one.
type addresses struct{ from, to uintptr }

// readOnlyMaps returns the addresses of a file's mappings that the process cannot write (proc_pid_maps(5)):
//
//	00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/criguard
func readOnlyMaps(r io.Reader, file string) (all []addresses) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 6 || strings.TrimLeft(fields[5], " ") != file || !strings.HasPrefix(fields[1], "r-") {
			continue
		}
		low, high, _ := strings.Cut(fields[0], "-")
		from, err := strconv.ParseUint(low, 16, strconv.IntSize)
		to, err2 := strconv.ParseUint(high, 16, strconv.IntSize)
		if err == nil && err2 == nil && from < to {
			all = append(all, addresses{uintptr(from), uintptr(to)})
		}
	}
	return all
}
