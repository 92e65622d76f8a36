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

// Every error of a call is one of these, or context.Canceled if the caller gave up.
var (
	// ErrUnavailable: nothing answers at the endpoint, or the connection broke.
	ErrUnavailable = errors.New("runtime is not reachable")
	// ErrTimeout: no answer came within the deadline. The runtime may still perform the request.
	ErrTimeout = errors.New("runtime did not answer in time")
	// ErrGone: there is no such sandbox, container or image.
	ErrGone = errors.New("no such object")
	// ErrUnsupported: the runtime does not offer the call.
	ErrUnsupported = errors.New("runtime does not support this")
	// ErrRefused: the runtime returned an error of its own, such as an image in use, a failing network
	// plugin or an internal error. Its message follows.
	ErrRefused = errors.New("runtime refused")
)

// ErrNoRuntime means that no container runtime answers. Connector returns it. NoRuntime marks the error of a
// failed call as one, too.
var ErrNoRuntime = errors.New("no container runtime answers")

// NoRuntime makes errors.Is(err, ErrNoRuntime) hold for the error of a failed call, without changing
// its text. nil stays nil.
func NoRuntime(err error) error {
	if err == nil || errors.Is(err, ErrNoRuntime) {
		return err
	}
	return noRuntimeError{err}
}

type noRuntimeError struct{ error }

func (e noRuntimeError) Unwrap() []error { return []error{ErrNoRuntime, e.error} }

// maxCause limits how much of a runtime's message an error repeats, in bytes.
const maxCause = 512

// dialing is the text that gRPC puts before the system's error message.
const dialing = `connection error: desc = "transport: Error while dialing: `

// callError turns the gRPC error of a call into one of the sentinels. ctx is the context of the call,
// took its duration. Runtimes use codes loosely (CRI-O returns Unknown for nearly everything), so only
// those codes count that the transport itself sets or that all runtimes use alike.
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
		// The runtime knows the deadline, and may be the first to notice it.
		if end, ok := ctx.Deadline(); ctx.Err() != nil || ok && !time.Now().Before(end) {
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
		return wrap(op, ErrTimeout, cause) // the runtime's own deadline, under another code
	}
	return wrap(op, ErrRefused, cause)
}

// answersFor checks that a status is about the requested object. An empty message would look like a
// ready sandbox or a newly created container. Runtimes complete shortened ids.
func answersFor(op, asked, got string) error {
	if got == "" || !strings.HasPrefix(got, asked) {
		return wrap(op, ErrRefused, "the answer is about "+strconv.Quote(short(got)))
	}
	return nil
}

// unlessGone treats the removal of an object that is already gone as a success, as newer runtimes do.
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

// clean makes text from a runtime fit for one line of a log.
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

// short returns as much of an id as people read.
func short(id string) string {
	const length = 13 // as crictl prints it
	if len(id) > length {
		id = id[:length]
	}
	return clean(id)
}
