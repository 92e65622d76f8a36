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

// Bounds of a program.
const (
	// MaxOutput is how much of what it writes is kept, in bytes; of the rest, as much
	// as tolerated is read and thrown away. Then nobody reads any more: reading a
	// flood costs the guard as much as writing it costs the program.
	MaxOutput = 4 << 10
	tolerated = 64 << 10
	// MaxInput is how much it is given, in bytes: what a pipe takes without a reader.
	MaxInput = 32 << 10

	killAfter = 2 * time.Second // between SIGTERM and SIGKILL
	leaveFor  = time.Second     // for whoever holds its output to let go; and to end with the context
)

// What a program gets in place of the guard's own: the kernel's OOM killer prefers
// it, and the scheduler others.
const (
	oomScoreAdj = 500
	niceness    = 10
)

// Errors of a run.
var (
	ErrTimeout = errors.New("timed out")
	ErrInput   = errors.New("input too long")
	ErrFlood   = errors.New("wrote too much")
)

// Program is what a hook runs.
type Program struct {
	Command []string // the first is an absolute path; no shell looks at them
	Timeout time.Duration

	patience time.Duration // between SIGTERM and SIGKILL; 0 = killAfter
}

// Result is what became of a run.
type Result struct {
	Err    error  // ErrTimeout, ErrFlood; or that it could not be started, or ended badly; nil = it did well
	Output string // the first bytes of what it wrote
	Took   time.Duration
}

// Run runs the program once with the input on its standard input, and returns when
// it and its process group have ended. When its time is over, or ctx is, the group
// gets SIGTERM, and later SIGKILL. Where a process cannot be killed even so, Run
// stays until ctx ends.
func (p Program) Run(ctx context.Context, input []byte, env ...string) Result {
	start := time.Now()
	var out output
	err := p.run(ctx, input, env, &out)
	return Result{Err: err, Output: out.String(), Took: time.Since(start)}
}

func (p Program) run(ctx context.Context, input []byte, env []string, out *output) error {
	if len(input) > MaxInput {
		return fmt.Errorf("start hook: %d bytes: %w", len(input), ErrInput)
	}
	stdin, give, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start hook: %w", err)
	}
	defer func() { _ = give.Close() }()
	cmd := exec.Command(p.Command[0], p.Command[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", stdin, out, out
	// Nothing of the service's own environment: NOTIFY_SOCKET, GOMEMLIMIT.
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = leaveFor
	err = cmd.Start()
	_ = stdin.Close()
	if err != nil {
		return fmt.Errorf("start hook: %w", err)
	}
	// It has its memory for itself by now (execve has happened), so these are its own
	// values. What it waits for on its standard input comes after them.
	pid := cmd.Process.Pid
	demoteErr := demote(pid)
	_, _ = give.Write(input) // it fits into the pipe; a program need not read it
	_ = give.Close()
	patience := cmp.Or(p.patience, killAfter)
	ended, over := make(chan error, 1), make(chan struct{})
	go func() { ended <- attend(ctx, pid, p.Timeout, patience, cmd.Wait) }()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(patience+2*leaveFor, func() { close(over) }) })
	defer stop()
	select {
	case err = <-ended:
	case <-over:
		err = ctx.Err() // it cannot be killed, and nobody waits any longer
	}
	if out.flooded() && !errors.Is(err, ErrTimeout) {
		err = ErrFlood // which is why it ended, most likely
	}
	if err != nil {
		return fmt.Errorf("run hook: %w", err)
	}
	return demoteErr
}

// attend sees to it that a process group ends, and reaps its leader.
func attend(ctx context.Context, pid int, timeout, patience time.Duration, reap func() error) error {
	exited := make(chan struct{})
	go func() { awaitExit(pid); close(exited) }()
	var why error
	select {
	case <-exited:
	case <-time.After(timeout):
		why = fmt.Errorf("%w after %s", ErrTimeout, timeout)
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
	// The leader has not been reaped: no other group can have its number. What is left
	// of this one must not pile up.
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	<-exited
	err := reap()
	switch {
	case why != nil:
		return why
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // somebody it left behind holds its output; it did well itself
	default:
		return err
	}
}

// awaitExit waits for a child's end and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// demote takes from a process what it has inherited to outlive others.
func demote(pid int) error {
	// Where lowering the priority is not allowed, it is no loss but of fairness.
	_ = unix.Setpriority(unix.PRIO_PGRP, pid, niceness)
	path := "/proc/" + strconv.Itoa(pid) + "/oom_score_adj"
	err := os.WriteFile(path, []byte(strconv.Itoa(oomScoreAdj)), 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil // it has ended already
	}
	if err != nil {
		return fmt.Errorf("set oom_score_adj of hook: %w", err)
	}
	return nil
}

// output keeps the beginning of what a program writes.
type output struct {
	mu    sync.Mutex
	kept  []byte
	total int
}

// Write keeps what there is room for. With its error the program's output is closed.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, b[:min(len(b), MaxOutput-len(o.kept))]...)
	if o.total += len(b); o.total > tolerated {
		return 0, ErrFlood
	}
	return len(b), nil
}

func (o *output) flooded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total > tolerated
}

// String is what was kept, as text.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ToValidUTF8(string(o.kept), "?")
}
