package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// BootTime returns the time since boot, including suspension (CLOCK_BOOTTIME). Setting the wall clock
// does not change it. It returns 0 on kernels without that clock.
func BootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// BootID returns the random ID of this boot. A boot time is only meaningful together with it.
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
