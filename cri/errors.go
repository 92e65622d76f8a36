package cri

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Every error of a call is one of these, or context.Canceled when the caller
// gave up.
var (
	// ErrUnavailable: nobody answers at the endpoint, or the connection broke.
	ErrUnavailable = errors.New("runtime is not reachable")
	// ErrTimeout: no answer came within the deadline. What was asked for may still
	// happen.
	ErrTimeout = errors.New("runtime did not answer in time")
	// ErrGone: there is no such sandbox, container or image.
	ErrGone = errors.New("no such object")
	// ErrUnsupported: the runtime does not offer the call.
	ErrUnsupported = errors.New("runtime does not support this")
	// ErrRefused: the runtime answered with an error of its own: an image in use,
	// a network plugin that fails, an internal error. Its words follow.
	ErrRefused = errors.New("runtime refused")
)

// maxCause bounds how much of a runtime's words an error repeats.
const maxCause = 512

// dialing is what gRPC puts before the system's words.
const dialing = `connection error: desc = "transport: Error while dialing: `

// callError turns what gRPC gave for a call that took so long into one of the
// sentinels; ctx is the one the call ran under. Runtimes use codes loosely (CRI-O
// answers Unknown to nearly everything), so only those codes count that the
// transport itself sets or that all runtimes mean.
func callError(ctx context.Context, op string, took time.Duration, err error) error {
	st, _ := status.FromError(err)
	cause := clean(st.Message())
	switch st.Code() {
	case codes.Canceled:
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", op, context.Canceled)
		}
		return wrap(op, ErrUnavailable, cause) // the client was closed
	case codes.DeadlineExceeded:
		if ctx.Err() != nil {
			cause = "gave up after " + took.Truncate(10*time.Millisecond).String()
		}
		return wrap(op, ErrTimeout, cause)
	case codes.Unavailable:
		if inner, ok := strings.CutPrefix(cause, dialing); ok {
			cause = strings.TrimSuffix(inner, `"`)
		}
		return wrap(op, ErrUnavailable, cause)
	case codes.NotFound:
		return wrap(op, ErrGone, cause)
	case codes.Unimplemented:
		if strings.HasPrefix(cause, "unknown service runtime.v1.") {
			cause += " (the CRI plugin is switched off, see disabled_plugins in the runtime's configuration, or the runtime is older than CRI v1)"
		}
		return wrap(op, ErrUnsupported, cause)
	}
	if strings.HasSuffix(cause, context.DeadlineExceeded.Error()) {
		return wrap(op, ErrTimeout, cause) // a deadline of the runtime's own, under another code
	}
	return wrap(op, ErrRefused, cause)
}

// answersFor checks that a status is about the object asked for. An empty message
// would read as a sandbox that is ready or a container that was just created.
// Runtimes complete shortened ids.
func answersFor(op, asked, got string) error {
	if got == "" || !strings.HasPrefix(got, asked) {
		return wrap(op, ErrRefused, "the answer is about "+strconv.Quote(short(got)))
	}
	return nil
}

// unlessGone makes the removal of what is gone already a success, as newer
// runtimes do by themselves.
func unlessGone(err error) error {
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

func wrap(op string, kind error, cause string) error {
	if cause == "" {
		return fmt.Errorf("%s: %w", op, kind)
	}
	return fmt.Errorf("%s: %w: %s", op, kind, cause)
}

// clean makes foreign text fit for one line of a log.
func clean(s string) string {
	cut := len(s) > maxCause
	if cut {
		s = s[:maxCause]
	}
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if cut {
		s += "…"
	}
	return s
}

// short is an id as far as people read it.
func short(id string) string {
	const length = 13 // as crictl prints it
	if len(id) > length {
		id = id[:length]
	}
	return clean(id)
}
