package cgroup

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// LockMemory keeps every page of the process in memory from when it is first
// used, so that it runs on while the node swaps or thrashes: mlockall(2) with
// MCL_ONFAULT, without which a Go program locks all that its runtime reserved,
// ten times of what it uses. It needs CAP_IPC_LOCK or a large enough
// RLIMIT_MEMLOCK, else the error is EPERM or ENOMEM, and linux 4.4, else
// ErrUnsupported.
func LockMemory() error {
	err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	switch {
	case errors.Is(err, unix.EINVAL):
		return unsupported("lock memory", "linux 4.4 (MCL_ONFAULT)")
	case err != nil:
		return fmt.Errorf("lock memory: %w", err)
	}
	return nil
}
