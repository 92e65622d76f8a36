package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// startTimeout limits the start of a daemon, on a machine that may be busy.
const startTimeout = time.Minute

// Daemon is a program that serves the node, such as containerd or a kubelet. It ends with the lab
// at the latest.
type Daemon struct {
	name   string
	lab    *Lab
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is gone and reaped
}

// StartDaemon starts a program in the lab's runtime cgroup, which its children inherit, with the
// runtime's environment. It logs to LogPath(name). The shell moves itself to the cgroup before it
// becomes the program, so that no process ever runs elsewhere.
func (l *Lab) StartDaemon(name, program string, args ...string) (*Daemon, error) {
	log, err := os.OpenFile(l.LogPath(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	command := l.programs.command(context.Background(), program, args...)
	enter := []string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(l.cgroups.dir(runtimeCgroup), "cgroup.procs"), command.Path}
	cmd := exec.Command("/bin/sh", append(enter, args...)...)
	cmd.Env = append(command.Env, "TMPDIR="+filepath.Join(l.claim.Dir, "tmp"))
	cmd.Dir = l.claim.Dir
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: the owner of the lab handles Ctrl-C in a terminal.
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	d := &Daemon{name: name, lab: l, cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(d.exited)
	}()
	return d, nil
}

// WaitReady waits until ready returns true; an error together with false means "not yet". It fails
// if the daemon ends, or is not ready in time.
func (d *Daemon) WaitReady(ctx context.Context, ready func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	go func() {
		select {
		case <-d.exited:
			gone(fmt.Errorf("%s ended: %s", d.name, d.cmd.ProcessState))
		case <-ctx.Done():
		}
	}()
	if err := poll(ctx, func() (bool, error) { return ready(ctx) }); err != nil {
		return fmt.Errorf("wait for %s: %w\n%s", d.name, err, d.lab.logTail(d.name))
	}
	return nil
}

// PID returns the daemon's process ID, or 0 once it has ended.
func (d *Daemon) PID() int {
	if d == nil || d.gone() {
		return 0
	}
	return d.cmd.Process.Pid
}

func (d *Daemon) gone() bool {
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

// End sends the daemon a signal and returns when it is gone. It kills a daemon that does not end in
// time.
func (d *Daemon) End(sig unix.Signal) error {
	if d == nil || d.gone() {
		return nil
	}
	process := d.cmd.Process
	if err := process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", d.name, err)
	}
	if sig != unix.SIGKILL {
		_ = process.Signal(unix.SIGCONT) // a paused process ignores other signals
	}
	patience := time.NewTimer(callTimeout)
	defer patience.Stop()
	select {
	case <-d.exited:
		return nil
	case <-patience.C:
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", d.name, err)
	}
	<-d.exited
	return nil
}

// Pause freezes the daemon (SIGSTOP): its sockets accept calls, which it never answers.
func (d *Daemon) Pause() error { return d.lab.pause([]int{d.PID()}) }

// Resume resumes the daemon.
func (d *Daemon) Resume() error { return d.lab.resume([]int{d.PID()}) }

// LogPath returns the file that a daemon, such as "containerd", logs to.
func (l *Lab) LogPath(daemon string) string { return filepath.Join(l.claim.Dir, daemon+".log") }

func (l *Lab) logTail(daemon string) string {
	text, err := os.ReadFile(l.LogPath(daemon))
	if err != nil {
		return ""
	}
	return lastLines(text, 10)
}
