package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/criguard/criguard/guard"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "devel"

// Exit codes, the same for every command.
const (
	exitOK          = 0
	exitFinding     = 1 // pressure, or something worth looking at
	exitUsage       = 2 // wrong usage or a bad configuration
	exitUnreachable = 3 // the runtime or the service does not answer
)

// codeError is an error with its exit code. A nil error with a code is a finding
// that the output has told already.
type codeError struct {
	code int
	err  error
	hint string
}

func (e *codeError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

func main() {
	os.Exit(execute(os.Args[1:]))
}

func execute(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cmd := newRoot()
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code, hint := exitUsage, ""
	var ce *codeError
	if errors.As(err, &ce) {
		code, hint = ce.code, ce.hint
	}
	if msg := err.Error(); msg != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "criguard: "+msg)
		if hint != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "hint: "+hint)
		}
	}
	return code
}

// classify gives an error from the guard its exit code and a hint.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, guard.ErrNoService):
		return &codeError{exitUnreachable, err, "start it with `systemctl start criguard` or `criguard run`; another directory is named with --run-dir"}
	case errors.Is(err, guard.ErrNoAnswer):
		return &codeError{exitUnreachable, err, "`journalctl -u criguard` tells what the service does"}
	case errors.Is(err, guard.ErrDenied):
		return &codeError{exitUnreachable, err, "ask as root, or as a member of the group criguard"}
	case errors.Is(err, guard.ErrRefused):
		return &codeError{exitUsage, err, "`criguard status` shows the mode and what is in force"}
	case errors.Is(err, guard.ErrNoRuntime):
		return &codeError{exitUnreachable, err, "is containerd or CRI-O running, and are you root? name its socket with --endpoint or in [runtime] endpoint"}
	case errors.Is(err, guard.ErrRunning):
		return &codeError{exitUsage, err, "one criguard guards a node; stop the other one first"}
	case errors.Is(err, fs.ErrPermission):
		return &codeError{exitUsage, err, "are you root? who guards a node has to be"}
	case errors.Is(err, guard.ErrConfig):
		return &codeError{exitUsage, err, "`criguard check` shows every mistake; `man criguard.toml` explains the keys"}
	}
	return err
}
