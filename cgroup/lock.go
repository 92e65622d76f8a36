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
	if exe, err := os.Readlink("/proc/self/exe"); err == nil {
		dropFile(exe)
	}
}

func dropFile(file string) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for _, r := range cleanMaps(f, file) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, r.from, r.to-r.from, unix.MADV_DONTNEED) // a hint: it may fail
	}
}

// addresses are those from one up to, but without, another one.
type addresses struct{ from, to uintptr }

// cleanMaps returns the addresses of a file's mappings that the process cannot write, and that still hold what the file holds
// (proc_pid_smaps(5)):
//
//	00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/criguard
//	Anonymous:             0 kB
//	Swap:                  0 kB
//
// The loader of a program built with -buildmode=pie relocates pages and then makes them read-only: they must stay.
func cleanMaps(r io.Reader, file string) (all []addresses) {
	var at addresses // the mapping of the current lines, if it is one of those
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		first, rest, _ := strings.Cut(lines.Text(), " ")
		if key, ok := strings.CutSuffix(first, ":"); ok {
			if (key == "Anonymous" || key == "Swap") && strings.TrimSpace(rest) != "0 kB" {
				at = addresses{}
			}
			continue
		}
		if at.from < at.to {
			all = append(all, at)
		}
		at = cleanMap(first, rest, file)
	}
	if at.from < at.to {
		all = append(all, at)
	}
	return all
}

// cleanMap returns the addresses of a mapping, none if it is not one of the file or can be written.
func cleanMap(span, rest, file string) addresses {
	fields := strings.SplitN(rest, " ", 5)
	if len(fields) < 5 || strings.TrimLeft(fields[4], " ") != file || !strings.HasPrefix(fields[0], "r-") {
		return addresses{}
	}
	low, high, _ := strings.Cut(span, "-")
	from, err := strconv.ParseUint(low, 16, strconv.IntSize)
	to, err2 := strconv.ParseUint(high, 16, strconv.IntSize)
	if err != nil || err2 != nil {
		return addresses{}
	}
	return addresses{uintptr(from), uintptr(to)}
}
