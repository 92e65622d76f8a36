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

// teardownTimeout bounds the removal of one lab. A process in uninterruptible sleep is what can use it up.
const teardownTimeout = 30 * time.Second

// shimSockets is where shims listen, whatever the runtime's own directories are.
const shimSockets = "/run/containerd/s"

// Sweep cleans up the labs whose owner died without closing them, such as a test run that was killed.
func Sweep() error { return registry{home}.sweep(teardown) }

// teardown takes a lab away: first what runs, then what is mounted, then what is on disk, then its cgroups. Done twice, it finds nothing to do.
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
	// Nothing is removed from disk while something is mounted there: it could be somebody else's.
	err = unmountBelow(r.Dir)
	if err == nil {
		err = os.RemoveAll(r.Dir)
	}
	return errors.Join(err, groups.remove(ctx))
}

// removeShimSockets removes the sockets of killed shims, which lie outside of the lab's directory. The bundle of each pod names its own.
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
	// The directories are the lab's own if nothing else is in them: a containerd of the system's has its socket there.
	parent := filepath.Dir(shimSockets)
	if entries, err := os.ReadDir(parent); err == nil && len(entries) == 1 && entries[0].Name() == filepath.Base(shimSockets) {
		if os.Remove(shimSockets) == nil {
			_ = os.Remove(parent)
		}
	}
}

// Leftovers lists what is there of the lab: processes, mounts, cgroups and directories. Nothing is after Close.
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
		// What is dead waits for the system's init to reap it.
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
