package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// startTimeout bounds a start of containerd, on a machine that may be busy.
const startTimeout = time.Minute

// daemon is one run of containerd.
type daemon struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is gone and reaped
}

// startContainerd starts containerd in the lab's runtime cgroup, which its shims inherit, and waits until the CRI serves. The shell moves itself
// there before it becomes containerd, so that not one process is ever elsewhere.
func (l *Lab) startContainerd(ctx context.Context) error {
	log, err := os.OpenFile(l.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	defer log.Close()
	containerd := l.programs.command(context.Background(), "containerd", "--config", filepath.Join(l.claim.Dir, "containerd.toml"))
	args := []string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(l.cgroups.dir(runtimeCgroup), "cgroup.procs"), containerd.Path}
	cmd := exec.Command("/bin/sh", append(args, containerd.Args[1:]...)...)
	cmd.Env = append(containerd.Env, "TMPDIR="+filepath.Join(l.claim.Dir, "tmp"))
	cmd.Dir = l.claim.Dir
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: Ctrl-C in a terminal is the lab's owner's to handle.
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	d := &daemon{cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(d.exited)
	}()
	l.daemon = d
	return l.waitReady(ctx, d)
}

// waitReady waits until containerd's CRI answers and says that it is ready.
func (l *Lab) waitReady(ctx context.Context, d *daemon) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	go func() {
		select {
		case <-d.exited:
			gone(fmt.Errorf("containerd ended: %s", d.cmd.ProcessState))
		case <-ctx.Done():
		}
	}()
	err := poll(ctx, func() (bool, error) { return l.serves(ctx) })
	if err != nil {
		return fmt.Errorf("wait for containerd: %w\n%s", err, l.logTail())
	}
	return nil
}

// Serves says whether the CRI answers and says that it is ready.
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

// LogPath returns the file that containerd and its shims log to.
func (l *Lab) LogPath() string { return filepath.Join(l.claim.Dir, "containerd.log") }

func (l *Lab) logTail() string {
	text, err := os.ReadFile(l.LogPath())
	if err != nil {
		return ""
	}
	return lastLines(text, 10)
}

// ContainerdPID returns the process ID of containerd, or 0 while it does not run.
func (l *Lab) ContainerdPID() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.daemon; d != nil && !d.gone() {
		return d.cmd.Process.Pid
	}
	return 0
}

func (d *daemon) gone() bool {
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

// KillContainerd kills containerd with SIGKILL and returns when it is gone. Pods go on.
func (l *Lab) KillContainerd() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.endContainerd(unix.SIGKILL)
}

// RestartContainerd starts containerd, after it ended the running one as a service manager does, and returns when it is ready.
func (l *Lab) RestartContainerd(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.endContainerd(unix.SIGTERM); err != nil {
		return err
	}
	return l.startContainerd(ctx)
}

func (l *Lab) endContainerd(sig unix.Signal) error {
	d := l.daemon
	if d == nil || d.gone() {
		return nil
	}
	process := d.cmd.Process
	if err := process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end containerd: %w", err)
	}
	if sig != unix.SIGKILL {
		_ = process.Signal(unix.SIGCONT) // a paused process heeds nothing else
	}
	patience := time.NewTimer(callTimeout)
	defer patience.Stop()
	select {
	case <-d.exited:
		return nil
	case <-patience.C:
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end containerd: %w", err)
	}
	<-d.exited
	return nil
}

// PauseContainerd stops containerd in its tracks (SIGSTOP): it accepts calls and never answers.
func (l *Lab) PauseContainerd() error { return l.pause([]int{l.ContainerdPID()}) }

// ResumeContainerd lets containerd go on.
func (l *Lab) ResumeContainerd() error { return l.resume([]int{l.ContainerdPID()}) }

// PauseShim stops the shim of one pod in its tracks (SIGSTOP): the runtime answers for every other pod.
func (l *Lab) PauseShim(sandboxID string) error {
	pids, err := l.shims(sandboxID)
	return errors.Join(err, l.pause(pids))
}

// ResumeShim lets the shim of one pod go on.
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

// pause stops processes of the lab and returns when all of their threads stand still.
func (l *Lab) pause(pids []int) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	for _, pid := range pids {
		if pid == 0 {
			return errors.New("pause containerd: not running")
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
			return errors.New("resume containerd: not running")
		}
		errs = append(errs, l.cgroups.signal(pid, unix.SIGCONT))
	}
	return errors.Join(errs...)
}

// standsStill says whether every thread of the process is stopped.
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
