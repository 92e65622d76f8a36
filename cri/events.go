package cri

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Events yields the ID of a container whenever it changes, until the stream breaks or ctx ends; it then
// yields the error. Pause containers have events, too, with the sandbox's ID as their own. Events are
// hints: runtimes drop some, and containerd 2 repeats those of the last five minutes. Only a listing is
// reliable.
//
// Subscribe only if Version.EventsShareable returns true. A runtime without events, or with events
// disabled (CRI-O's default), ends the stream at once with ErrUnsupported: do not subscribe again
// before the next listing is due.
func (c *Client) Events(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		start, seen := time.Now(), 0
		stream, err := c.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		for err == nil {
			var m *runtimeapi.ContainerEventResponse
			if m, err = stream.Recv(); err != nil {
				break
			}
			seen++
			if !yield(m.GetContainerId(), nil) {
				return
			}
		}
		yield("", streamError(ctx, err, seen, time.Since(start)))
	}
}

// streamError returns why a stream ended after this many events.
func streamError(ctx context.Context, err error, seen int, took time.Duration) error {
	const op = "watch events"
	switch {
	case !errors.Is(err, io.EOF):
		return callError(ctx, op, took, err)
	case seen == 0:
		return wrap(op, ErrUnsupported, "the runtime sends no events")
	default:
		return wrap(op, ErrUnavailable, "the runtime ended the stream")
	}
}
