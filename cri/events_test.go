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

// watch collects the events of one container until the stream ends.
func watch(ctx context.Context, c *cri.Client, id string, seen chan<- string) error {
	for changed, err := range c.Events(ctx) {
		if err != nil {
			return err
		}
		if changed == id {
			seen <- changed
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
			seen, ended := make(chan string, 10), make(chan error, 1)
			go func() { ended <- watch(ctx, c, id, seen) }()
			// Events from before the subscription come again, then new ones.
			for range 2 {
				<-seen
			}
			s.Kill(id)
			<-seen
			s.Forget(id)
			<-seen
			cancel()
			wantOnly(t, <-ended, context.Canceled)
		})
	}
}

func TestTwoSubscribersSeeTheSame(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	id := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}}).Containers[0].ID
	ctx, cancel := context.WithCancel(t.Context())
	a, b, ended := make(chan string, 10), make(chan string, 10), make(chan error, 2)
	go func() { ended <- watch(ctx, c, id, a) }()
	go func() { ended <- watch(ctx, c, id, b) }()
	for range 2 {
		<-a
		<-b
	}
	cancel()
	for range 2 {
		wantOnly(t, <-ended, context.Canceled)
	}
}

// TestNoEvents: the client returns an error at once and does not retry.
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
		seen, ended := make(chan string, 10), make(chan error, 1)
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
		// The server's handler returns: the client closed the stream.
		for len(s.Calls("GetContainerEvents")) == 0 || s.Calls("GetContainerEvents")[0].Took == 0 {
			time.Sleep(time.Millisecond)
		}
	})
}
