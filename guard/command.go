package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// What operators may ask a running service for.
const (
	CommandPause   = "pause"
	CommandResume  = "resume"
	CommandDrain   = "drain"
	CommandUndrain = "undrain"
)

// Command is one such wish, as it goes over the control socket.
type Command struct {
	Command string        `json:"command"`
	For     TraceDuration `json:"for,omitempty"`   // of a pause
	Grace   TraceDuration `json:"grace,omitempty"` // of a drain
	DryRun  bool          `json:"dry_run,omitempty"`
	Reason  string        `json:"reason,omitempty"`
}

// CommandAnswer is what came of a command.
type CommandAnswer struct {
	APIVersion string     `json:"apiVersion"`
	Message    string     `json:"message"`
	Until      time.Time  `json:"until,omitzero"` // of a pause, by the wall clock
	Plan       *DrainPlan `json:"plan,omitempty"`
}

// CommandView is a command in the record.
type CommandView struct {
	Command string        `json:"command"`
	For     time.Duration `json:"for,omitempty"`
	Grace   time.Duration `json:"grace,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	By      *Peer         `json:"by,omitempty"` // nil = the guard itself
}

// Errors of commands.
var (
	ErrBadCommand = errors.New("bad command")
	ErrRefused    = errors.New("refused")
)

// Bounds of a command.
const (
	maxCommand = 8 << 10 // bytes of JSON
	maxReason  = 256     // bytes
)

// Operator carries out commands.
type Operator interface {
	// Command carries one out for a peer. ErrRefused says that the state of the
	// service does not allow it.
	Command(ctx context.Context, c Command, by Peer) (CommandAnswer, error)
	// Plan tells how far a drain is, or what one would do.
	Plan(ctx context.Context) (DrainPlan, error)
}

// ParseCommand reads a command and holds it to its bounds: ErrBadCommand says
// which it breaks.
func ParseCommand(r io.Reader) (Command, error) {
	bad := func(format string, args ...any) (Command, error) {
		return Command{}, fmt.Errorf("%w: %w", ErrBadCommand, fmt.Errorf(format, args...))
	}
	var c Command
	dec := json.NewDecoder(io.LimitReader(r, maxCommand))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return bad("%w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return bad("more than one JSON value")
	}
	switch c.Command {
	case CommandPause:
		if c.For <= 0 || time.Duration(c.For) > maxPaused {
			return bad("a pause lasts up to %s, not %s", shortDuration(maxPaused), time.Duration(c.For))
		}
	case CommandDrain:
		if c.Grace < 0 || time.Duration(c.Grace) > maxDrainGrace {
			return bad("the grace period of a drain is 0s to %s, not %s", shortDuration(maxDrainGrace), time.Duration(c.Grace))
		}
	case CommandResume, CommandUndrain:
	default:
		return bad("%q is none of pause, resume, drain, undrain", c.Command)
	}
	switch {
	case c.For != 0 && c.Command != CommandPause:
		return bad(`"for" belongs to pause alone`)
	case (c.Grace != 0 || c.DryRun) && c.Command != CommandDrain:
		return bad(`"grace" and "dry_run" belong to drain alone`)
	case len(c.Reason) > maxReason:
		return bad("the reason has %d bytes, and may have %d", len(c.Reason), maxReason)
	case !plainText(c.Reason):
		return bad("the reason must be one line of text")
	}
	return c, nil
}

// plainText reports whether a text can stand in a line of a log or a terminal.
func plainText(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return false
		}
	}
	return true
}
