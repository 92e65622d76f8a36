package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// OnlineCPUs returns how many CPUs the machine has online, also those that this process may not use. The list is in the sysfs that
// has the cgroups' mount point, see the kernel's admin-guide/cputopology.
func (l Layout) OnlineCPUs() (int, error) {
	path := filepath.Join(l.Root(), "../../devices/system/cpu/online")
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the online CPUs: %w", err)
	}
	n, err := countCPUs(string(b))
	if err != nil {
		return 0, fmt.Errorf("read the online CPUs: %s: %w", path, err)
	}
	return n, nil
}

var errCPUList = errors.New("not a list of CPUs")

// maxCPU exceeds the number of every CPU (CONFIG_NR_CPUS).
const maxCPU = 1 << 16

// countCPUs counts the CPUs of a list such as "0-3,8".
func countCPUs(list string) (n int, err error) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 32)
		to, err2 := strconv.ParseUint(last, 10, 32)
		if err != nil || err2 != nil || from > to || to >= maxCPU || n >= maxCPU {
			return 0, fmt.Errorf("%w: %.40q", errCPUList, list)
		}
		n += int(to-from) + 1 //nolint:gosec // less than maxCPU
	}
	return n, nil
}
