// The Go runtime would read the CPU quota of its cgroup once a second, in case it changes.
//
//go:debug updatemaxprocs=0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/guard/safetext"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "devel"

// secondSignal is how long after the first signal a second one may come and count as the same.
const secondSignal = time.Second

func main() {
	os.Exit(execute(os.Args[1:]))
}

func execute(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends a command that hangs, as in reading a file. timeout(1) sends each signal twice at once, to the command
	// and to its process group: those two count as one, so that the command can still end in order.
	context.AfterFunc(ctx, func() { time.AfterFunc(secondSignal, stop) })
	cmd := newRoot()
	cmd.SetArgs(args)
	// Escape control sequences in all output: pods, runtimes and files supply untrusted text.
	out, errs := safetext.NewWriter(os.Stdout), safetext.NewWriter(os.Stderr) //nolint:forbidigo // the one way out
	defer func() { _ = errs.Flush() }()
	cmd.SetOut(out)
	cmd.SetErr(errs)
	cmd, err := cmd.ExecuteContextC(ctx)
	lost := out.Flush() // a full disk, for example
	if err != nil && err.Error() != "" {
		printError(out, errs, lost == nil && wantsJSON(cmd, args), err)
	}
	switch {
	case lost != nil:
		if !errors.Is(err, lost) {
			printError(out, errs, false, lost)
		}
		return cli.ExitUsage // whatever the output said
	case err != nil:
		return codeOf(err).Code
	}
	return cli.ExitOK
}

// printError prints an error for a program or for people, with what to do.
func printError(out, errs io.Writer, asJSON bool, err error) {
	msg, hint := err.Error(), codeOf(err).Hint
	if asJSON {
		_ = cli.PrintLine(out, api.Error{APIVersion: api.APIVersion, Error: msg, Hint: hint}) // the exit code remains
		return
	}
	if !errors.Is(err, schema.ErrInvalid) { // already one line per mistake
		msg = strings.ReplaceAll(msg, "\n", "; ")
	}
	fmt.Fprintln(errs, "criguard: "+msg)
	if hint != "" {
		fmt.Fprintln(errs, "hint: "+hint)
	}
}

// wantsJSON reports whether the user wants JSON. If a flag is wrong, the flags after it are not parsed; for a
// command without --output, it is the wrong one.
func wantsJSON(cmd *cobra.Command, args []string) bool {
	if f := cmd.Flags().Lookup("output"); f != nil && f.Changed {
		return f.Value.String() == "json"
	}
	for i, a := range args {
		switch a {
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			return i+1 < len(args) && args[i+1] == "json"
		}
	}
	return false
}

// codeOf maps an error to its exit code and a hint.
func codeOf(err error) *cli.Error {
	var ce *cli.Error
	switch {
	case errors.As(err, &ce):
		return ce
	case errors.Is(err, control.ErrNoService):
		return cli.NewError(cli.ExitUnreachable, err, "start it with `systemctl start criguard` or `criguard run`; another directory is named with --run-dir; `criguard status` says if one runs that does not answer")
	case errors.Is(err, control.ErrNoAnswer):
		return cli.NewError(cli.ExitUnreachable, err, "see the service's log: `journalctl -u criguard`; `systemctl restart criguard` ends a service that hangs")
	case errors.Is(err, control.ErrDenied):
		return cli.NewError(cli.ExitUnreachable, err, "run as root or as a member of the group criguard")
	case errors.Is(err, api.ErrRefused):
		return cli.NewError(cli.ExitUsage, err, "`criguard status` shows the mode and what is in force")
	case errors.Is(err, cri.ErrNoRuntime):
		return cli.NewError(cli.ExitUnreachable, err, "check that containerd or CRI-O is running, and run as root; set its socket with --endpoint or [runtime] endpoint")
	case errors.Is(err, rundir.ErrRunning):
		return cli.NewError(cli.ExitUsage, err, "only one criguard can run on a node; stop the other one first")
	case errors.Is(err, fs.ErrPermission):
		return cli.NewError(cli.ExitUsage, err, "must run as root")
	case errors.Is(err, schema.ErrInvalid):
		return cli.NewError(cli.ExitUsage, err, "`man criguard.toml` explains every key, and so does config.example.toml (/usr/share/doc/criguard)")
	}
	return &cli.Error{Code: cli.ExitUsage, Err: err}
}
