package cri_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// watch collects events of one container until the stream ends.
func watch(ctx context.Context, c *cri.Client, id string, seen chan<- cri.Event) error {
	for e, err := range c.Events(ctx) {
		if err != nil {
			return err
		}
		if e.ContainerID == id {
			seen <- e
		}
	}
	return nil
}

func TestEvents(t *testing.T) {
	for _, d := range []critest.Dialect{critest.Containerd2, critest.CRIO} {
		t.Run(d.String(), func(t *testing.T) {
			s, c := serve(t, d, critest.WithEvents())
			pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
			id := pod.Containers[0].ID
			ctx, cancel := context.WithCancel(t.Context())
			seen, ended := make(chan cri.Event, 10), make(chan error, 1)
			go func() { ended <- watch(ctx, c, id, seen) }()
			// What happened before the subscription is sent again, then what happens.
			for _, want := range []cri.EventKind{cri.EventCreated, cri.EventStarted} {
				if e := <-seen; e.Kind != want || e.SandboxID != pod.ID || time.Since(e.At) > time.Minute {
					t.Errorf("event = %+v, want %s", e, want)
				}
			}
			s.Kill(id)
			if e := <-seen; e.Kind != cri.EventStopped {
				t.Errorf("event = %+v, want stopped", e)
			}
			s.Forget(id)
			if e := <-seen; e.Kind != cri.EventDeleted {
				t.Errorf("event = %+v, want deleted", e)
			}
			cancel()
			wantOnly(t, <-ended, context.Canceled)
		})
	}
}

func TestTwoSubscribersSeeTheSame(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	id := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}}).Containers[0].ID
	ctx, cancel := context.WithCancel(t.Context())
	a, b, ended := make(chan cri.Event, 10), make(chan cri.Event, 10), make(chan error, 2)
	go func() { ended <- watch(ctx, c, id, a) }()
	go func() { ended <- watch(ctx, c, id, b) }()
	for range 2 {
		if x, y := <-a, <-b; x != y {
			t.Errorf("%+v differs from %+v", x, y)
		}
	}
	cancel()
	for range 2 {
		wantOnly(t, <-ended, context.Canceled)
	}
}

// TestNoEvents: the consumer hears so at once, and does not spin.
func TestNoEvents(t *testing.T) {
	for _, d := range []critest.Dialect{critest.Containerd16, critest.CRIO} {
		t.Run(d.String(), func(t *testing.T) {
			s, c := serve(t, d)
			s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
			wantOnly(t, watch(t.Context(), c, "", nil), cri.ErrUnsupported)
			if n := len(s.Calls("GetContainerEvents")); n != 1 {
				t.Errorf("%d subscriptions", n)
			}
		})
	}
}

func TestEventStreamBreaks(t *testing.T) {
	t.Run("runtime stops", func(t *testing.T) {
		s, c := serve(t, critest.Containerd2)
		id := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}}).Containers[0].ID
		seen, ended := make(chan cri.Event, 10), make(chan error, 1)
		go func() { ended <- watch(t.Context(), c, id, seen) }()
		<-seen
		s.Stop()
		wantOnly(t, <-ended, cri.ErrUnavailable)
	})
	t.Run("nobody listens", func(t *testing.T) {
		c := dial(t, "/nonexistent/cri.sock", patience)
		wantOnly(t, watch(t.Context(), c, "", nil), cri.ErrUnavailable)
	})
	t.Run("runtime refuses", func(t *testing.T) {
		s, c := serve(t, critest.Containerd2)
		s.Inject(critest.Fault{Method: "GetContainerEvents", Err: errors.New("too many subscribers")})
		wantOnly(t, watch(t.Context(), c, "", nil), cri.ErrRefused)
	})
	t.Run("out of time", func(t *testing.T) {
		s, c := serve(t, critest.Containerd2)
		s.Inject(critest.Fault{Method: "GetContainerEvents", Err: critest.Code(codes.DeadlineExceeded, "slow")})
		wantOnly(t, watch(t.Context(), c, "", nil), cri.ErrTimeout)
	})
	t.Run("consumer leaves", func(t *testing.T) {
		s, c := serve(t, critest.Containerd2)
		s.AddPod(critest.PodSpec{})
		for _, err := range c.Events(t.Context()) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		// The server's handler ends: the stream was given back, not left open.
		for len(s.Calls("GetContainerEvents")) == 0 || s.Calls("GetContainerEvents")[0].Took == 0 {
			time.Sleep(time.Millisecond)
		}
	})
}

func TestEventKindString(t *testing.T) {
	for k, want := range map[cri.EventKind]string{
		cri.EventCreated: "created", cri.EventStarted: "started", cri.EventStopped: "stopped", cri.EventDeleted: "deleted",
		cri.EventUnknown: "unknown", 99: "unknown",
	} {
		if k.String() != want {
			t.Errorf("%d = %q, want %q", k, k, want)
		}
	}
}
