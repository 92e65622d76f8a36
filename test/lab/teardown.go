package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// teardownTimeout limits the removal of one lab. A process in uninterruptible sleep can exhaust it.
const teardownTimeout = 2 * time.Minute

// shimSockets is the directory of the shims' sockets, regardless of the runtime's own directories.
const shimSockets = "/run/containerd/s"

// Sweep cleans up labs whose owner died without closing them, for example in a killed test run.
func Sweep() error { return registry{home}.sweep(teardown) }

// teardown removes a lab: first its processes, then its mounts, its files and its cgroups. It is
// idempotent.
func teardown(r record) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), teardownTimeout, errors.New("gave up"))
	defer cancel()
	groups, err := findCgroups(r.Cgroup)
	if err != nil {
		return err
	}
	if err := groups.killAll(ctx); err != nil {
		return err
	}
	removeShimSockets(r.Dir)
	// Do not remove files while anything is mounted there: the mount could belong to another
	// program.
	err = unmountBelow(r.Dir)
	if err == nil {
		err = os.RemoveAll(r.Dir)
	}
	return errors.Join(err, groups.remove(ctx))
}

// removeShimSockets removes the sockets of killed shims, which are outside of the lab's directory.
// Each pod's bundle names its own.
func removeShimSockets(dir string) {
	bundles := filepath.Join(dir, stateDir, "io.containerd.runtime.v2.task/*/*")
	addresses, _ := filepath.Glob(filepath.Join(bundles, "address"))
	params, _ := filepath.Glob(filepath.Join(bundles, "bootstrap.json"))
	for _, file := range append(addresses, params...) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		address := string(text)
		var bootstrap struct{ Address string }
		if json.Unmarshal(text, &bootstrap) == nil {
			address = bootstrap.Address
		}
		socket := strings.TrimPrefix(strings.TrimSpace(address), "unix://")
		if filepath.Dir(socket) == shimSockets {
			_ = os.Remove(socket)
		}
	}
}

// removeShimDir removes the directory of the shims' sockets. It belongs to the labs if nothing else is in it or
// beside it: a system containerd has its socket there.
func removeShimDir() {
	parent := filepath.Dir(shimSockets)
	if entries, err := os.ReadDir(parent); err == nil && len(entries) == 1 && entries[0].Name() == filepath.Base(shimSockets) {
		if os.Remove(shimSockets) == nil {
			_ = os.Remove(parent)
		}
	}
}

// Leftovers lists what exists of the lab: processes, mounts, cgroups and directories. After Close,
// the list is empty.
func (l *Lab) Leftovers() ([]string, error) { return leftovers(l.claim.record) }

func leftovers(r record) ([]string, error) {
	groups, err := findCgroups(r.Cgroup)
	if err != nil {
		return nil, err
	}
	var left []string
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, entry := range processes {
		pid, err := strconv.Atoi(entry.Name())
		// The system's init reaps zombies.
		if err != nil || !groups.holds(pid) || stateIn(filepath.Join("/proc", entry.Name(), "stat")) == 'Z' {
			continue
		}
		command, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "comm"))
		left = append(left, fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(command))))
	}
	points, err := mountsBelow(r.Dir)
	if err != nil {
		return nil, err
	}
	for _, point := range points {
		left = append(left, "mount "+point)
	}
	for _, dir := range groups.dirs() {
		left = append(left, "cgroup "+dir)
	}
	if _, err := os.Lstat(r.Dir); err == nil {
		left = append(left, "directory "+r.Dir)
	}
	return left, nil
}
