package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// startContainerd starts containerd and waits until its CRI answers that it is ready.
func (l *Lab) startContainerd(ctx context.Context) (err error) {
	l.daemon, err = l.StartDaemon("containerd", "containerd", "--config", filepath.Join(l.claim.Dir, "containerd.toml"))
	if err != nil {
		return err
	}
	return l.daemon.WaitReady(ctx, l.serves)
}

// Serves reports whether the CRI answers that it is ready.
func (l *Lab) Serves(ctx context.Context) bool {
	ready, err := l.serves(ctx)
	return ready && err == nil
}

func (l *Lab) serves(ctx context.Context) (bool, error) {
	answer, err := l.runtime.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(answer.GetStatus().GetConditions(), func(c *cri.RuntimeCondition) bool {
		return c.GetType() == "RuntimeReady" && c.GetStatus()
	}), nil
}

// ContainerdPID returns the process ID of containerd, or 0 while it does not run.
func (l *Lab) ContainerdPID() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.daemon.PID()
}

// KillContainerd kills containerd with SIGKILL and returns when it is gone. Pods keep running.
func (l *Lab) KillContainerd() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.daemon.End(unix.SIGKILL)
}

// RestartContainerd ends the running containerd as a service manager does, starts it again, and
// returns when it is ready.
func (l *Lab) RestartContainerd(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.daemon.End(unix.SIGTERM); err != nil {
		return err
	}
	return l.startContainerd(ctx)
}

// PauseContainerd freezes containerd (SIGSTOP): it accepts calls and never answers.
func (l *Lab) PauseContainerd() error { return l.pause([]int{l.ContainerdPID()}) }

// ResumeContainerd resumes containerd.
func (l *Lab) ResumeContainerd() error { return l.resume([]int{l.ContainerdPID()}) }

// PauseShim freezes the shim of one pod (SIGSTOP): the runtime still answers for every other pod.
func (l *Lab) PauseShim(sandboxID string) error {
	pids, err := l.shims(sandboxID)
	return errors.Join(err, l.pause(pids))
}

// ResumeShim resumes the shim of one pod.
func (l *Lab) ResumeShim(sandboxID string) error {
	pids, err := l.shims(sandboxID)
	return errors.Join(err, l.resume(pids))
}

// shims finds the shim processes of a pod by their argument "-id <sandbox ID>".
func (l *Lab) shims(sandboxID string) ([]int, error) {
	found := l.ShimsOf(sandboxID)
	if len(found) == 0 {
		return nil, fmt.Errorf("find shim of sandbox %s: not running", sandboxID)
	}
	return found, nil
}

// Shims returns the shim processes of all pods.
func (l *Lab) Shims() []int { return l.shimsWith("\x00-id\x00") }

// ShimsOf returns the shim processes of one pod.
func (l *Lab) ShimsOf(sandboxID string) []int { return l.shimsWith("\x00-id\x00" + sandboxID + "\x00") }

// shimsWith finds shims by a part of their command line.
func (l *Lab) shimsWith(part string) []int {
	var found []int
	for _, pid := range readPIDs(filepath.Join(l.cgroups.dir(runtimeCgroup), "cgroup.procs")) {
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && bytes.Contains(command, []byte(part)) {
			found = append(found, pid)
		}
	}
	return found
}

// pause stops processes of the lab and returns when all of their threads are stopped.
func (l *Lab) pause(pids []int) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	for _, pid := range pids {
		if pid == 0 {
			return errors.New("pause process: not running")
		}
		if err := l.cgroups.signal(pid, unix.SIGSTOP); err != nil {
			return err
		}
		if err := poll(ctx, func() (bool, error) { return standsStill(pid) }); err != nil {
			return fmt.Errorf("pause process %d: %w", pid, err)
		}
	}
	return nil
}

func (l *Lab) resume(pids []int) error {
	var errs []error
	for _, pid := range pids {
		if pid == 0 {
			return errors.New("resume process: not running")
		}
		errs = append(errs, l.cgroups.signal(pid, unix.SIGCONT))
	}
	return errors.Join(errs...)
}

// standsStill reports whether every thread of the process is stopped.
func standsStill(pid int) (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	for _, path := range stats {
		if state := stateIn(path); state != 'T' {
			return false, fmt.Errorf("still in state %q", state)
		}
	}
	return len(stats) > 0, nil
}
