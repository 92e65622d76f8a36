package cluster

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// KernelMemory returns how much memory the kernel itself uses on this machine, and how much free memory it keeps back from
// programs, in bytes. The kubelet's memory.available leaves both out on both versions of cgroups: it counts anonymous memory
// and page cache only (package fs2 of github.com/opencontainers/cgroups computes it so for the root of v2, as v1 does).
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
	kept, err := keptBack()
	return sum + kept, err
}

// keptBack returns the free memory up to the min watermark and the reserve of each zone.
func keptBack() (sum int64, err error) {
	text, err := os.ReadFile("/proc/zoneinfo")
	if err != nil {
		return 0, err
	}
	var free, least int64
	for line := range strings.Lines(string(text)) {
		fields := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" (,)\n", r) })
		switch {
		case strings.HasPrefix(line, "  pages free "):
			_, err = fmt.Sscan(fields[2], &free)
		case len(fields) == 2 && fields[0] == "min":
			_, err = fmt.Sscan(fields[1], &least)
		case len(fields) > 1 && fields[0] == "protection:":
			var reserve int64 // for the highest zone, which is the largest
			_, err = fmt.Sscan(fields[len(fields)-1], &reserve)
			sum += min(free, least+reserve) * int64(os.Getpagesize())
		}
		if err != nil {
			return 0, fmt.Errorf("read zoneinfo: %q: %w", line, err)
		}
	}
	return sum, nil
}
