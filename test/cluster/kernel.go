package cluster

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// KernelMemory returns how much memory the kernel itself uses on this machine, in bytes. The kubelet's
// memory.available leaves it out on both versions of cgroups: it counts anonymous memory and page cache only
// (package fs2 of github.com/opencontainers/cgroups computes it so for the root of v2, as v1 does).
func KernelMemory() (sum int64, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var name string
		var kib int64
		if _, err := fmt.Sscan(line, &name, &kib); err == nil && slices.Contains([]string{"Slab:", "KernelStack:", "PageTables:", "Percpu:"}, name) {
			sum += kib << 10
		}
	}
	return sum, nil
}
