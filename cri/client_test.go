package cri_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// method is a client call with the name of its CRI method.
type method struct {
	name string
	call func(ctx context.Context, c *cri.Client, id string) error
}

// methods returns all unary calls of the client.
func methods() []method {
	return []method{
		{"Version", func(ctx context.Context, c *cri.Client, _ string) error { _, err := c.Version(ctx); return err }},
		{"Status", func(ctx context.Context, c *cri.Client, _ string) error { _, err := c.Status(ctx); return err }},
		{"ListPodSandbox", func(ctx context.Context, c *cri.Client, _ string) error { _, err := c.Sandboxes(ctx); return err }},
		{"PodSandboxStatus", func(ctx context.Context, c *cri.Client, id string) error { _, err := c.Sandbox(ctx, id); return err }},
		{"PodSandboxStatus", func(ctx context.Context, c *cri.Client, id string) error {
			_, err := c.SandboxDetail(ctx, id)
			return err
		}},
		{"ListContainers", func(ctx context.Context, c *cri.Client, _ string) error { _, err := c.Containers(ctx); return err }},
		{"ContainerStatus", func(ctx context.Context, c *cri.Client, id string) error {
			_, err := c.ContainerStatus(ctx, id)
			return err
		}},
		{"ContainerStatus", func(ctx context.Context, c *cri.Client, id string) error {
			_, err := c.ContainerDetail(ctx, id)
			return err
		}},
		{"ContainerStats", func(ctx context.Context, c *cri.Client, id string) error {
			_, err := c.WritableLayer(ctx, id)
			return err
		}},
		{"ListImages", func(ctx context.Context, c *cri.Client, _ string) error { _, err := c.Images(ctx); return err }},
		{"ImageFsInfo", func(ctx context.Context, c *cri.Client, _ string) error {
			_, _, err := c.ImageFilesystems(ctx)
			return err
		}},
		{"StopContainer", func(ctx context.Context, c *cri.Client, id string) error {
			return c.StopContainer(ctx, id, time.Second)
		}},
		{"StopPodSandbox", func(ctx context.Context, c *cri.Client, id string) error { return c.StopSandbox(ctx, id) }},
		{"RemoveContainer", func(ctx context.Context, c *cri.Client, id string) error { return c.RemoveContainer(ctx, id) }},
		{"RemovePodSandbox", func(ctx context.Context, c *cri.Client, id string) error { return c.RemoveSandbox(ctx, id) }},
		{"RemoveImage", func(ctx context.Context, c *cri.Client, id string) error { return c.RemoveImage(ctx, id) }},
	}
}

// sentinels lists all sentinels, to check that an error is exactly one of them.
var sentinels = []error{
	cri.ErrUnavailable, cri.ErrTimeout, cri.ErrGone, cri.ErrUnsupported, cri.ErrRefused, context.Canceled,
}

// wantOnly checks that an error is exactly one sentinel and that its text does not expose gRPC.
func wantOnly(t *testing.T, err, want error) {
	t.Helper()
	for _, s := range sentinels {
		if errors.Is(err, s) != errors.Is(want, s) {
			t.Errorf("%v: errors.Is(%v) = %t", err, s, errors.Is(err, s))
		}
	}
	if err != nil && (strings.Contains(err.Error(), "rpc error") || strings.Contains(err.Error(), "\n")) {
		t.Errorf("error text: %q", err)
	}
	var g interface{ GRPCStatus() *status.Status }
	if errors.As(err, &g) {
		t.Errorf("%v carries a gRPC status", err)
	}
}

func TestEveryCallHasADeadline(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	defer s.Hang()()
	c := dial(t, s.Endpoint(), 50*time.Millisecond)
	c.SetStopSandboxTimeout(50 * time.Millisecond)
	long := map[string]bool{"ListImages": true, "ContainerStatus": true, "StopContainer": true, "RemoveContainer": true, "RemovePodSandbox": true, "RemoveImage": true}
	for _, m := range methods() {
		t.Run(m.name, func(t *testing.T) {
			ctx := t.Context()
			if long[m.name] { // deliberately longer than the client's timeout; the caller limits it
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
			}
			wantOnly(t, m.call(ctx, c, "some-id"), cri.ErrTimeout)
		})
	}
	for _, call := range s.Calls() {
		if !call.Bounded {
			t.Errorf("%s came without a deadline", call.Method)
		}
	}
}

func TestDeadlines(t *testing.T) {
	s := critest.New(t, critest.Containerd16)
	c := dial(t, s.Endpoint(), 3*time.Second)
	ctx := t.Context()
	for _, tc := range []struct {
		name string
		call func() error
		want time.Duration
	}{
		{"list", func() error { _, err := c.Sandboxes(ctx); return err }, 3 * time.Second},
		{"list images", func() error { _, err := c.Images(ctx); return err }, 10 * time.Second},
		{"inspect container", func() error { _, err := c.ContainerDetail(ctx, "x"); return err }, 3 * time.Second},
		{"look container up", func() error { _, err := c.ContainerStatus(ctx, "x"); return err }, 15 * time.Second},
		{"stop container", func() error { return c.StopContainer(ctx, "x", 30*time.Second) }, 40 * time.Second},
		{"kill container", func() error { return c.StopContainer(ctx, "x", 0) }, 10 * time.Second},
		{"stop sandbox", func() error { return c.StopSandbox(ctx, "x") }, 5 * time.Second},
		{"stop dead sandbox", func() error { return c.StopDeadSandbox(ctx, "x") }, 2 * time.Minute},
		{"remove container", func() error { return c.RemoveContainer(ctx, "x") }, 30 * time.Second},
		{"remove sandbox", func() error { return c.RemoveSandbox(ctx, "x") }, 30 * time.Second},
		{"remove image", func() error { return c.RemoveImage(ctx, "x") }, 2 * time.Minute},
		{"caller's own", func() error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return c.RemoveImage(ctx, "x")
		}, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.ForgetCalls()
			begin := time.Now()
			if err := tc.call(); err != nil && !errors.Is(err, cri.ErrGone) {
				t.Fatal(err)
			}
			took := time.Since(begin)
			if left := s.Calls()[0].Left; left > tc.want || left < tc.want-took {
				t.Errorf("deadline in %s, want %s", left, tc.want)
			}
		})
	}
}

func TestLongClientTimeoutCounts(t *testing.T) {
	s := critest.New(t, critest.Containerd16)
	c := dial(t, s.Endpoint(), 5*time.Minute)
	for _, m := range methods() {
		if m.name != "StopPodSandbox" { // its deadline is a grace period
			_ = m.call(t.Context(), c, "x")
		}
	}
	for _, call := range s.Calls() {
		if call.Left < 4*time.Minute {
			t.Errorf("%s has %s, want the client's 5m", call.Method, call.Left)
		}
	}
}

func TestSentinels(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	for _, tc := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"unavailable", critest.Code(codes.Unavailable, "containerd is shutting down"), cri.ErrUnavailable, "containerd is shutting down"},
		{"deadline of the runtime", critest.Code(codes.DeadlineExceeded, "task state timed out"), cri.ErrTimeout, "task state timed out"},
		{"deadline under code unknown", errors.New("failed to get task: context deadline exceeded"), cri.ErrTimeout, "failed to get task"},
		{"canceled by the runtime", critest.Code(codes.Canceled, "context canceled"), cri.ErrUnavailable, ""},
		{"unimplemented", critest.Code(codes.Unimplemented, "unknown method X"), cri.ErrUnsupported, "unknown method X"},
		{"unknown", errors.New("image is in use by a container"), cri.ErrRefused, "image is in use by a container"},
		{"failed precondition", critest.Code(codes.FailedPrecondition, "container is running"), cri.ErrRefused, "container is running"},
		{"internal", critest.Code(codes.Internal, "boom"), cri.ErrRefused, "boom"},
		{"multi-line", errors.New("one\ntwo\x1b[31m"), cri.ErrRefused, "one two [31m"},
		{"no text", critest.Code(codes.Unknown, ""), cri.ErrRefused, "runtime refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer s.Inject(critest.Fault{Err: tc.err})()
			for _, m := range methods() {
				err := m.call(t.Context(), c, "some-id")
				wantOnly(t, err, tc.want)
				if err != nil && !strings.Contains(err.Error(), tc.text) {
					t.Errorf("%s: %q lacks %q", m.name, err, tc.text)
				}
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		defer s.Inject(critest.Fault{Err: critest.Code(codes.NotFound, "no such thing")})()
		for _, m := range methods() {
			want := cri.ErrGone
			if strings.HasPrefix(m.name, "Stop") || strings.HasPrefix(m.name, "Remove") {
				want = nil
			}
			wantOnly(t, m.call(t.Context(), c, "some-id"), want)
		}
	})
	t.Run("caller gives up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, m := range methods() {
			wantOnly(t, m.call(ctx, c, "some-id"), context.Canceled)
		}
	})
	t.Run("names the object and what was asked", func(t *testing.T) {
		defer s.Inject(critest.Fault{Err: errors.New("busy")})()
		err := c.StopContainer(t.Context(), "0123456789abcdef0123", 0)
		if want := "stop container 0123456789abc: runtime refused: busy"; err.Error() != want {
			t.Errorf("error = %q, want %q", err, want)
		}
		err = c.RemoveImage(t.Context(), "sha256:0123456789abcdef0123")
		if want := "remove image 0123456789abc: runtime refused: busy"; err.Error() != want {
			t.Errorf("error = %q, want %q", err, want)
		}
	})
}

func TestCRISwitchedOff(t *testing.T) {
	c := dial(t, critest.ServeWithoutCRI(t), patience)
	for _, m := range methods() {
		err := m.call(t.Context(), c, "some-id")
		wantOnly(t, err, cri.ErrUnsupported)
		if !strings.Contains(err.Error(), "disabled_plugins") {
			t.Errorf("%s: %q does not say that the CRI plugin is off", m.name, err)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	c := dial(t, filepath.Join(t.TempDir(), "none.sock"), patience)
	for _, m := range methods() {
		start := time.Now()
		err := m.call(t.Context(), c, "some-id")
		wantOnly(t, err, cri.ErrUnavailable)
		if !strings.Contains(err.Error(), ": dial unix /") || !strings.HasSuffix(err.Error(), "no such file or directory") {
			t.Errorf("error text: %q", err)
		}
		if took := time.Since(start); took > patience/2 {
			t.Errorf("%s took %s to see that nobody listens", m.name, took)
		}
	}
}

func TestAcceptsAndSaysNothing(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := dial(t, socket, 100*time.Millisecond)
	_, err = c.Version(t.Context())
	wantOnly(t, err, cri.ErrTimeout)
}

func TestSpeaksAnotherProtocol(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 mail.example.org ESMTP\r\n"))
			_ = conn.Close()
		}
	}()
	defer func() { l.Close(); <-served }()
	c := dial(t, socket, patience)
	_, err = c.Version(t.Context())
	wantOnly(t, err, cri.ErrUnavailable)
}

func TestRestartedRuntimeIsFoundAgain(t *testing.T) {
	each(t, func(t *testing.T, s *critest.Server, c *cri.Client) {
		pod := s.AddPod(critest.PodSpec{})
		if _, err := c.Sandbox(t.Context(), pod.ID); err != nil {
			t.Fatal(err)
		}
		s.Stop()
		_, err := c.Sandbox(t.Context(), pod.ID)
		wantOnly(t, err, cri.ErrUnavailable)
		s.Start()
		start := time.Now()
		for {
			if _, err = c.Sandbox(t.Context(), pod.ID); err == nil {
				break
			}
			wantOnly(t, err, cri.ErrUnavailable)
			if time.Since(start) > patience {
				t.Fatalf("still not found: %v", err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

func TestServerPID(t *testing.T) {
	_, c := serve(t, critest.Containerd2)
	if got := c.ServerPID(); got != 0 {
		t.Errorf("process %d before the first call", got)
	}
	if _, err := c.Version(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.ServerPID(); got != os.Getpid() {
		t.Errorf("got process %d, want this one, %d", got, os.Getpid())
	}
}

func TestCallsBreakOffWithTheRuntime(t *testing.T) {
	s, c := serve(t, critest.Containerd2)
	defer s.Hang()()
	done := make(chan error)
	go func() { _, err := c.Version(t.Context()); done <- err }()
	s.WaitCalls(t, "Version", 1)
	s.Stop()
	wantOnly(t, <-done, cri.ErrUnavailable)
}

func TestClosedClient(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	c, err := cri.Dial(s.Endpoint(), patience)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = c.Version(t.Context())
	wantOnly(t, err, cri.ErrUnavailable)
	if err := c.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestMessageSize(t *testing.T) {
	s, c := serve(t, critest.CRIO)
	fill := func(bytes int) func() {
		return s.Inject(critest.Fault{Method: "ListImages", Edit: func(resp any) {
			resp.(*runtimeapi.ListImagesResponse).Images[0].RepoTags = []string{strings.Repeat("a", bytes)}
		}})
	}
	release := fill(20 << 20) // above gRPC's default of 4 MiB and containerd's limit
	images, err := c.Images(t.Context())
	if err != nil || len(images[0].Tags[0]) != 20<<20 {
		t.Errorf("20 MiB: %v", err)
	}
	release()
	release = fill(65 << 20)
	_, err = c.Images(t.Context())
	wantOnly(t, err, cri.ErrRefused)
	release()
	if _, err = c.Images(t.Context()); err != nil {
		t.Errorf("after a message too large: %v", err)
	}
}

func TestDialRefuses(t *testing.T) {
	for _, endpoint := range []string{"", "tcp://127.0.0.1:1", "run/x.sock", "unix://run/x.sock", "unix:x", "npipe:////./pipe/x", "/run/a\x00b"} {
		c, err := cri.Dial(endpoint, 0)
		if err == nil {
			_ = c.Close()
			t.Errorf("Dial(%q) works", endpoint)
		} else if !strings.HasPrefix(err.Error(), "dial runtime ") {
			t.Errorf("Dial(%q): %q", endpoint, err)
		}
	}
}

func TestEndpointForms(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	path := strings.TrimPrefix(s.Endpoint(), "unix://")
	for _, endpoint := range []string{path, "unix://" + path, "unix:" + path} {
		c := dial(t, endpoint, 0)
		if c.Endpoint() != "unix://"+path {
			t.Errorf("Endpoint of %q = %q", endpoint, c.Endpoint())
		}
		if _, err := c.Version(t.Context()); err != nil {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}

// TestNeverAsksForAllStats: one hung shim blocks the calls that list statistics.
func TestNeverAsksForAllStats(t *testing.T) {
	s, c := serve(t, critest.Containerd16)
	pod := s.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	defer s.FreezeShim(pod.ID)()
	for _, m := range methods() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_ = m.call(ctx, c, pod.Containers[0].ID)
		cancel()
	}
	for _, call := range s.Calls() {
		if strings.HasPrefix(call.Method, "List") && strings.HasSuffix(call.Method, "Stats") {
			t.Errorf("called %s", call.Method)
		}
	}
}

// A client keeps its connection however long it is idle. It makes a new one only after the runtime has
// closed the old one.
func TestConnections(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	c, err := cri.Dial(s.Endpoint(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if n := c.Connections(); n != 0 {
		t.Errorf("%d connections before the first call", n)
	}
	for restarts := range int64(3) {
		for range 2 {
			for deadline := time.Now().Add(time.Minute); ; {
				if _, err = c.Version(t.Context()); err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
			if n := c.Connections(); n != restarts+1 {
				t.Errorf("%d connections after %d restarts", n, restarts)
			}
		}
		s.Stop()
		_, err = c.Version(t.Context())
		if !errors.Is(err, cri.ErrUnavailable) {
			t.Errorf("without a runtime: %v", err)
		}
		s.Start()
	}
}
