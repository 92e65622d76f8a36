package cri

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// EventKind is what happened to a container.
type EventKind uint8

// The kinds of events. A pause container has events too: its id is the sandbox's.
const (
	EventUnknown EventKind = iota
	EventCreated
	EventStarted
	EventStopped
	EventDeleted
)

// String is the kind in lower case.
func (k EventKind) String() string {
	switch k {
	case EventCreated:
		return "created"
	case EventStarted:
		return "started"
	case EventStopped:
		return "stopped"
	case EventDeleted:
		return "deleted"
	default:
		return "unknown"
	}
}

// Event is a hint that a container changed.
type Event struct {
	ContainerID string
	SandboxID   string // "" = not told
	Kind        EventKind
	At          time.Time // zero = not told
}

// Events yields the runtime's events as they come, until the stream breaks or ctx
// ends; the error it ended with comes last. Events are hints: runtimes drop them,
// and containerd 2 sends those of the last five minutes again. List to know.
//
// Subscribe only where Version.EventsShareable says so. A runtime without events,
// or with events switched off (CRI-O's default), ends the stream at once with
// ErrUnsupported: do not subscribe again before the next listing is due anyway.
func (c *Client) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
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
			if !yield(eventOf(m), nil) {
				return
			}
		}
		yield(Event{}, streamError(ctx, err, seen, time.Since(start)))
	}
}

// streamError tells why a stream ended after so many events.
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

func eventOf(m *runtimeapi.ContainerEventResponse) Event {
	e := Event{
		ContainerID: m.GetContainerId(),
		SandboxID:   m.GetPodSandboxStatus().GetId(),
		At:          unixNano(m.GetCreatedAt()),
	}
	switch m.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		e.Kind = EventCreated
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		e.Kind = EventStarted
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		e.Kind = EventStopped
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		e.Kind = EventDeleted
	}
	return e
}
