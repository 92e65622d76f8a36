package hook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of a program.
const (
	// maxOutput is how many bytes of output are kept. Up to tolerated bytes are read; then the
	// output is closed, because reading a flood costs the guard as much as writing it costs the
	// program.
	maxOutput = 4 << 10
	tolerated = 64 << 10
	// maxInput is the input limit in bytes: a pipe buffers this much without a reader.
	maxInput = 32 << 10

	killAfter = 2 * time.Second // between SIGTERM and SIGKILL
	leaveFor  = time.Second     // grace for processes that hold the output open, and for cleanup after ctx ends
)

// A program does not keep the guard's values: the kernel's OOM killer prefers it as a victim, and
// the scheduler prefers other processes.
const (
	oomScoreAdj = 500
	niceness    = 10
)

// Errors of a run.
var (
	errTimeout = errors.New("timed out")
	errInput   = errors.New("input too long")
	errFlood   = errors.New("wrote too much")
)

// program is the program of a hook.
type program struct {
	Command []string // the first is an absolute path; no shell is involved
	Timeout time.Duration
	Access  *Access // checked before each start; nil: no check

	patience time.Duration // between SIGTERM and SIGKILL; 0 = killAfter
}

// outcome is the outcome of a run.
type outcome struct {
	Err    error  // errInput, errNoAnswer, errTimeout, errFlood, or a start or exit error; nil: success
	Output string // the first bytes of its output
	Took   time.Duration
}

// runOnce runs the program once with the input on its standard input, and returns when the program and
// its process group have ended. On timeout or when ctx ends, the group gets SIGTERM, and SIGKILL
// after a grace period. If a process survives SIGKILL, runOnce returns a few seconds after ctx ends.
func (p program) runOnce(ctx context.Context, input []byte, env ...string) outcome {
	start := time.Now()
	var out output
	err := p.run(ctx, input, env, &out)
	return outcome{Err: err, Output: out.String(), Took: time.Since(start)}
}

func (p program) run(ctx context.Context, input []byte, env []string, out *output) error {
	if len(input) > maxInput {
		return fmt.Errorf("start hook: %d bytes: %w", len(input), errInput)
	}
	if err := p.answers(ctx); err != nil {
		return fmt.Errorf("start hook: %w", err)
	}
	stdin, give, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start hook: %w", err)
	}
	defer func() { _ = give.Close() }()
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", stdin, out, out
	// Pass nothing from the service's own environment, such as NOTIFY_SOCKET and GOMEMLIMIT.
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = leaveFor
	err = cmd.Start()
	_ = stdin.Close()
	if err != nil {
		return fmt.Errorf("start hook: %w", err)
	}
	// execve has completed by now, so these values apply to the child alone. Set them before the
	// program gets its input.
	pid := cmd.Process.Pid
	demoteErr := demote(pid)
	_, _ = give.Write(input) // fits into the pipe buffer; a program need not read it
	_ = give.Close()
	patience := cmp.Or(p.patience, killAfter)
	ended, over := make(chan error, 1), make(chan struct{})
	go func() { ended <- attend(ctx, pid, p.Timeout, patience, cmd.Wait) }()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(patience+2*leaveFor, func() { close(over) }) })
	defer stop()
	select {
	case err = <-ended:
	case <-over:
		err = ctx.Err() // SIGKILL had no effect; give up
	}
	if out.flooded() && !errors.Is(err, errTimeout) {
		err = errFlood // most likely why it ended
	}
	if err != nil {
		return fmt.Errorf("run hook: %w", err)
	}
	return demoteErr
}

// answers returns an error if the program's filesystem does not answer or ctx has ended. Other
// errors show up when the program is started.
func (p program) answers(ctx context.Context) error {
	if p.Access == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	if err := p.Access.check(limited, p.Command[0]); errors.Is(err, errNoAnswer) {
		return err
	}
	return ctx.Err()
}

// attend waits for a process group to end, kills it on timeout, and reaps its leader.
func attend(ctx context.Context, pid int, timeout, patience time.Duration, reap func() error) error {
	exited := make(chan struct{})
	go func() { awaitExit(pid); close(exited) }()
	var why error
	select {
	case <-exited:
	case <-time.After(timeout):
		why = fmt.Errorf("%w after %s", errTimeout, timeout)
	case <-ctx.Done():
		why = ctx.Err()
	}
	if why != nil {
		_ = syscall.Kill(-pid, syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(patience):
		}
	}
	// The leader has not been reaped, so no other group can have its ID. Kill leftover processes so
	// that they do not accumulate.
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	<-exited
	err := reap()
	switch {
	case why != nil:
		return why
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // a leftover process holds the output open; the program itself succeeded
	default:
		return err
	}
}

// awaitExit waits for a child to exit without reaping it.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// demote removes the protection that a process has inherited from the guard.
func demote(pid int) error {
	// If lowering the priority is not permitted, only fairness suffers.
	_ = unix.Setpriority(unix.PRIO_PGRP, pid, niceness)
	path := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
	err := os.WriteFile(path, []byte(strconv.Itoa(oomScoreAdj)), 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil // the process has already ended
	}
	if err != nil {
		return fmt.Errorf("set oom_score_adj of hook: %w", err)
	}
	return nil
}

// output keeps the beginning of a program's output.
type output struct {
	mu    sync.Mutex
	kept  []byte
	total int
}

// Write keeps up to maxOutput bytes. Its error closes the program's output.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, b[:min(len(b), maxOutput-len(o.kept))]...)
	if o.total += len(b); o.total > tolerated {
		return 0, errFlood
	}
	return len(b), nil
}

func (o *output) flooded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total > tolerated
}

// String returns the kept output as valid UTF-8.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ToValidUTF8(string(o.kept), "?")
}
