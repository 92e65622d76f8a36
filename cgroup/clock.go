package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is the time since boot with suspension counted (CLOCK_BOOTTIME), which
// setting the wall clock does not change. It is 0 on kernels without that clock.
func BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// BootID is the random ID of this boot: a boot time means something together with
// it only.
func BootID(proc Proc) (string, error) {
	b, err := os.ReadFile(filepath.Join(string(proc), "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	id := bytes.TrimSpace(b)
	if len(id) == 0 {
		return "", fmt.Errorf("read boot id: %s is empty", proc)
	}
	return string(id), nil
}
