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
	"sync/atomic"
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
	// maxInput is the input limit in bytes: a pipe usually buffers this much without a reader.
	maxInput = 32 << 10

	killAfter = 2 * time.Second // between SIGTERM and SIGKILL
	leaveFor  = time.Second     // for processes that hold the output open, and for cleanup after ctx ends
	// dieFor is how long a process may take to end after SIGKILL: to free much memory, or to finish a slow write.
	dieFor = 10 * time.Second
	// maxLeft limits the processes that survive SIGKILL, such as on a dead network mount: each keeps a thread.
	maxLeft = 4
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
	errLeft    = errors.New("earlier runs survive SIGKILL")
)

// program is the program of a hook.
type program struct {
	Command []string // the first is an absolute path; no shell is involved
	Timeout time.Duration
	Access  *Access // checked before each start; nil: no check

	patience time.Duration                     // between SIGTERM and SIGKILL; 0 = killAfter
	pipe     func() (r, w *os.File, err error) // nil = os.Pipe
	left     *atomic.Int32                     // processes of this command that have survived SIGKILL so far
}

// outcome is the outcome of a run.
type outcome struct {
	Err    error  // errInput, errNoAnswer, errTimeout, errFlood, errLeft, or a start or exit error; nil: success
	Output string // the first bytes of its output
	Took   time.Duration
}

// runOnce runs the program once with the input on its standard input, and returns when the program and
// its process group have ended. On timeout or when ctx ends, the group gets SIGTERM, and SIGKILL
// after a grace period. If the program survives SIGKILL, as in an uninterruptible sleep, runOnce leaves it
// behind, and runs no further one while there are maxLeft.
func (p *program) runOnce(ctx context.Context, input []byte, env ...string) outcome {
	start := time.Now()
	var out output
	err := p.run(ctx, input, env, &out)
	return outcome{Err: err, Output: out.String(), Took: time.Since(start)}
}

func (p *program) run(ctx context.Context, input []byte, env []string, out *output) error {
	if len(input) > maxInput {
		return fmt.Errorf("start hook: %d bytes: %w", len(input), errInput)
	}
	if n := p.left.Load(); n >= maxLeft {
		return fmt.Errorf("start hook: %d %w", n, errLeft)
	}
	if err := p.answers(ctx); err != nil {
		return fmt.Errorf("start hook: %w", err)
	}
	pipe := os.Pipe
	if p.pipe != nil {
		pipe = p.pipe
	}
	stdin, give, err := pipe()
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
	// A program need not read its input, which may not fit into the pipe: the kernel makes shorter ones if there are many
	// (pipe(7), pipe-user-pages-soft). The write then ends with run.
	go func() {
		_, _ = give.Write(input)
		_ = give.Close()
	}()
	exited := make(chan struct{})
	go func() { awaitExit(pid); close(exited) }()
	err = p.attend(ctx, child{exited, func(sig syscall.Signal) { _ = syscall.Kill(-pid, sig) }, cmd.Wait})
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
func (p *program) answers(ctx context.Context) error {
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

// child is a program that runs in a process group of its own.
type child struct {
	exited <-chan struct{} // closed when the leader has exited
	kill   func(syscall.Signal)
	reap   func() error // of the leader, which has exited
}

// attend waits for a program to end, kills its process group on timeout, and reaps its leader.
func (p *program) attend(ctx context.Context, c child) error {
	var why error
	select {
	case <-c.exited:
	case <-time.After(p.Timeout):
		why = fmt.Errorf("%w after %s", errTimeout, p.Timeout)
	case <-ctx.Done():
		why = ctx.Err()
	}
	if why != nil {
		c.kill(syscall.SIGTERM)
		select {
		case <-c.exited:
		case <-time.After(cmp.Or(p.patience, killAfter)):
		}
	}
	// The leader has not been reaped, so no other group can have its ID. Kill leftover processes so
	// that they do not accumulate.
	c.kill(syscall.SIGKILL)
	if !c.dies(ctx) {
		p.left.Add(1)
		go func() {
			<-c.exited
			_ = c.reap()
			p.left.Add(-1)
		}()
		return fmt.Errorf("%w and survives SIGKILL", why)
	}
	err := c.reap()
	switch {
	case why != nil:
		return why
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // a leftover process holds the output open; the program itself succeeded
	default:
		return err
	}
}

// dies waits until a child that was killed has exited, and reports whether it has in time.
func (c child) dies(ctx context.Context) bool {
	ended := ctx.Done()
	for late := time.After(dieFor); ; {
		select {
		case <-c.exited:
			return true
		case <-ended:
			ended, late = nil, time.After(leaveFor)
		case <-late:
			return false
		}
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
