package critest

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventHub distributes events to subscribers. Server.mu guards it.
type eventHub struct {
	subscribers map[chan *runtimeapi.ContainerEventResponse]struct{}
	past        []*runtimeapi.ContainerEventResponse
}

const (
	eventBuffer = 1000 // per subscriber; events that do not fit are dropped
	eventReplay = 5 * time.Minute
)

// publish sends an event about a container to all subscribers.
func (s *Server) publish(kind runtimeapi.ContainerEventType, id string, p *pod) {
	if s.traits.events != eventsBroadcast {
		return
	}
	e := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: p.status(),
	}
	if s.events.past = append(s.events.past, e); len(s.events.past) > eventBuffer {
		s.events.past = s.events.past[1:]
	}
	for ch := range s.events.subscribers {
		select {
		case ch <- e:
		default:
		}
	}
}

// GetContainerEvents sends old events and then new ones, or reports that there are no events, depending
// on the dialect.
func (v *runtimeService) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	switch v.s.traits.events {
	case eventsUnimplemented:
		return status.Error(codes.Unimplemented, "unknown method GetContainerEvents for service runtime.v1.RuntimeService")
	case eventsEnd:
		return nil
	}
	past, ch := v.s.subscribe()
	defer v.s.unsubscribe(ch)
	for _, e := range past {
		if err := stream.Send(e); err != nil {
			return err
		}
	}
	for {
		select {
		case e := <-ch:
			if err := stream.Send(e); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

func (s *Server) subscribe() (past []*runtimeapi.ContainerEventResponse, ch chan *runtimeapi.ContainerEventResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events.subscribers == nil {
		s.events.subscribers = map[chan *runtimeapi.ContainerEventResponse]struct{}{}
	}
	ch = make(chan *runtimeapi.ContainerEventResponse, eventBuffer)
	s.events.subscribers[ch] = struct{}{}
	for _, e := range s.events.past {
		if time.Since(time.Unix(0, e.GetCreatedAt())) < eventReplay {
			past = append(past, e)
		}
	}
	return past, ch
}

func (s *Server) unsubscribe(ch chan *runtimeapi.ContainerEventResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.events.subscribers, ch)
}
