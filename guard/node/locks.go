package node

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/criguard/criguard/cgroup"
)

// Locks names the locks of what one criguard alone may enforce: the pods cgroup and the runtime. pods and endpoint
// are the configured ones, or "". Guards of separate runtimes with separate pods cgroups run side by side, as
// in tests. Without a configured pods cgroup there may be no such cgroup yet, so guards without it exclude each other in
// any case.
func Locks(layout cgroup.Layout, pods, endpoint string) (names []string, err error) {
	root, err := layout.Inode("/")
	if err != nil {
		return nil, err
	}
	all := []string{pods}
	if pods == "" {
		if found, _, err := layout.FindPods(); err == nil {
			all = append(all, found)
		}
	}
	for _, p := range all {
		names = append(names, fmt.Sprintf("pods %d %s", root, p))
	}
	if socket := strings.TrimPrefix(endpoint, "unix://"); socket != "" {
		if target, err := filepath.EvalSymlinks(socket); err == nil {
			socket = target
		}
		names = append(names, "runtime "+socket)
	}
	return names, nil
}
