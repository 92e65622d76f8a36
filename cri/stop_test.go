package cri_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// TestGraceInSeconds: a grace period is rounded up, never down to a kill.
func TestGraceInSeconds(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	for _, tc := range []struct {
		grace time.Duration
		want  time.Duration
	}{
		{0, 0}, {-time.Second, 0}, {time.Nanosecond, time.Second}, {time.Second, time.Second},
		{1500 * time.Millisecond, 2 * time.Second}, {math.MaxInt64, time.Duration(math.MaxInt64/int64(time.Second)-10) * time.Second},
	} {
		s.ForgetCalls()
		if err := c.StopContainer(t.Context(), "none", tc.grace); err != nil {
			t.Fatal(err)
		}
		if got := s.Calls()[0].Grace; got != tc.want {
			t.Errorf("grace %s is sent as %s, want %s", tc.grace, got, tc.want)
		}
	}
}

// TestDeadlineLeavesRoomForTheKill: containerd would never kill if the call's deadline came at or
// before the end of the grace period.
func TestDeadlineLeavesRoomForTheKill(t *testing.T) {
	s := critest.New(t, critest.Containerd16)
	c := dial(t, s.Endpoint(), 100*time.Millisecond) // far below the grace period
	id := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{IgnoreTERM: true}}}).Containers[0].ID
	if err := c.StopContainer(t.Context(), id, time.Second); err != nil {
		t.Fatal(err)
	}
	if s.Alive(id) {
		t.Error("the container lives")
	}
}

func TestStopOfWhatIsGone(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		for _, tc := range []struct {
			method string
			stop   func(ctx context.Context, pod critest.Pod) error
		}{
			{"StopContainer", func(ctx context.Context, p critest.Pod) error {
				return c.StopContainer(ctx, p.Containers[0].ID, time.Second)
			}},
			{"StopPodSandbox", func(ctx context.Context, p critest.Pod) error { return c.StopSandbox(ctx, p.ID) }},
			{"RemoveContainer", func(ctx context.Context, p critest.Pod) error { return c.RemoveContainer(ctx, p.Containers[0].ID) }},
			{"RemovePodSandbox", func(ctx context.Context, p critest.Pod) error { return c.RemoveSandbox(ctx, p.ID) }},
		} {
			pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
			release := s.Inject(critest.Fault{Method: tc.method, Vanish: true})
			if err := tc.stop(t.Context(), pod); err != nil {
				t.Errorf("%s: %v", tc.method, err)
			}
			release()
		}
	})
}

// TestSandboxDeadlineIsCRIOsGrace: the containers get the deadline of StopSandbox, less 2 s, to exit.
func TestSandboxDeadlineIsCRIOsGrace(t *testing.T) {
	s := critest.New(t, critest.CRIO)
	c := dial(t, s.Endpoint(), patience)
	c.SetStopSandboxTimeout(2500 * time.Millisecond)
	pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{IgnoreTERM: true}}})
	start := time.Now()
	if err := c.StopSandbox(t.Context(), pod.ID); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("took %s, want 500ms at least", took)
	}
}

// TestNetworkFailure: containerd returns the error after it has killed everything, CRI-O before it
// stops anything. CRI-O's second attempt succeeds.
func TestNetworkFailure(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		defer s.BreakNetwork()()
		v, err := c.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
		wantOnly(t, c.StopSandbox(t.Context(), pod.ID), cri.ErrRefused)
		if s.Alive(pod.Containers[0].ID) != v.IsCRIO() {
			t.Errorf("alive after the first try: %t", s.Alive(pod.Containers[0].ID))
		}
		if err := c.StopSandbox(t.Context(), pod.ID); errors.Is(err, cri.ErrRefused) == v.IsCRIO() {
			t.Errorf("second try: %v", err)
		}
		if s.Alive(pod.Containers[0].ID) {
			t.Error("alive after the second try")
		}
	})
}
