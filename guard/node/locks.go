package node

import (
	"fmt"
	"path/filepath"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri/socket"
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
	if endpoint != "" {
		file, err := socket.Path(endpoint)
		if err != nil {
			return nil, err
		}
		if target, err := filepath.EvalSymlinks(file); err == nil {
			file = target
		}
		names = append(names, "runtime "+file)
	}
	return names, nil
}
