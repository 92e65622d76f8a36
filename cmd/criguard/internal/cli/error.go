package cli

import "github.com/spf13/cobra"

// Exit codes, the same for every command.
const (
	ExitOK          = 0
	ExitFinding     = 1 // pressure, or something that needs attention
	ExitUsage       = 2 // wrong usage or invalid configuration
	ExitUnreachable = 3 // runtime or service does not answer
)

// Error is an error with its exit code. A code without an error is a finding that the output has already
// reported.
type Error struct {
	Code int
	Err  error
	Hint string // what to do; "" = nothing to add
}

// NewError returns an error with its exit code and a hint.
func NewError(code int, err error, hint string) *Error { return &Error{code, err, hint} }

// Finding returns the exit code of a finding that the output has already reported.
func Finding() *Error { return &Error{Code: ExitFinding} }

// Unreachable returns the exit code for what does not answer, which the output has already reported.
func Unreachable() *Error { return &Error{Code: ExitUnreachable} }

func (e *Error) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Misused returns a command's error for wrong flags or arguments.
func Misused(cmd *cobra.Command, err error) error {
	return &Error{ExitUsage, err, "`" + cmd.CommandPath() + " --help` lists the options"}
}
