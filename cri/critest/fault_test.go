package critest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestFaultTimesAndScope(t *testing.T) {
	s := New(t, Containerd2)
	r := dialRaw(t, s)
	stop := func(id string) error {
		_, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id})
		return err
	}
	s.Inject(Fault{Method: "StopContainer", ID: "a", Times: 2, Err: errors.New("no")})
	for i, want := range []codes.Code{codes.Unknown, codes.Unknown, codes.OK} {
		if err := stop("b"); err != nil {
			t.Errorf("another id: %v", err)
		}
		t.Log(i)
		wantCode(t, stop("a"), want)
	}
	release := s.Inject(Fault{Err: Code(codes.Aborted, "all of them")})
	wantCode(t, stop("b"), codes.Aborted)
	_, err := r.Version(t.Context(), &runtimeapi.VersionRequest{})
	wantCode(t, err, codes.Aborted)
	release()
	release() // does nothing
	wantCode(t, stop("b"), codes.OK)
}

func TestFaultDelay(t *testing.T) {
	s := New(t, Containerd2)
	r := dialRaw(t, s)
	release := s.Inject(Fault{Method: "Version", Delay: 50 * time.Millisecond})
	start := time.Now()
	if _, err := r.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil || time.Since(start) < 50*time.Millisecond {
		t.Errorf("answered after %s, %v", time.Since(start), err)
	}
	release()
	s.Inject(Fault{Method: "Version", Delay: time.Hour})
	_, err := r.Version(within(t, 50*time.Millisecond), &runtimeapi.VersionRequest{})
	wantCode(t, err, codes.DeadlineExceeded)
}

func TestFaultHang(t *testing.T) {
	s := New(t, Containerd2)
	r := dialRaw(t, s)
	release := s.Hang()
	wantCode(t, leave(t, s, "Version", func(ctx context.Context) error {
		_, err := r.Version(ctx, &runtimeapi.VersionRequest{})
		return err
	}), codes.Canceled)
	done := make(chan error)
	go func() {
		_, err := r.Version(t.Context(), &runtimeapi.VersionRequest{})
		done <- err
	}()
	s.WaitCalls(t, "Version", 2)
	// The server hears that the client has left a moment after the client.
	for deadline := time.Now().Add(time.Minute); s.Calls("Version")[0].Err == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("calls = %+v", s.Calls("Version"))
		}
	}
	if calls := s.Calls("Version"); calls[1].Took != 0 {
		t.Errorf("calls = %+v", calls)
	}
	release()
	if err := <-done; err != nil {
		t.Errorf("released: %v", err)
	}
}

func TestFaultVanish(t *testing.T) {
	s := New(t, Containerd2)
	r := dialRaw(t, s)
	pod := s.AddPod(PodSpec{Containers: []ContainerSpec{{}}})
	s.Inject(Fault{Vanish: true})
	_, err := r.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: pod.Containers[0].ID})
	wantCode(t, err, codes.NotFound)
	_, err = r.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.ID})
	wantCode(t, err, codes.NotFound)
	img := s.AddImage(ImageSpec{})
	_, err = r.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: img}})
	wantCode(t, err, codes.OK)
	if s.Has(pod.ID) || s.Has(pod.Containers[0].ID) || s.Has(img) {
		t.Error("something did not vanish")
	}
}

func TestFaultDoNothing(t *testing.T) {
	s := New(t, Containerd2)
	r := dialRaw(t, s)
	pod := s.AddPod(PodSpec{Containers: []ContainerSpec{{}}})
	img := s.AddImage(ImageSpec{})
	s.Inject(Fault{DoNothing: true})
	ctr := pod.Containers[0].ID
	_, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: ctr})
	wantCode(t, err, codes.OK)
	_, err = r.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod.ID})
	wantCode(t, err, codes.OK)
	_, err = r.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: ctr})
	wantCode(t, err, codes.OK)
	_, err = r.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.ID})
	wantCode(t, err, codes.OK)
	_, err = r.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: img}})
	wantCode(t, err, codes.OK)
	if !s.Alive(ctr) || !s.Has(img) {
		t.Error("something happened")
	}
	if list, err := r.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}); err != nil || len(list.GetItems()) != 1 {
		t.Errorf("a listing goes on as ever: %v, %v", list, err)
	}
}

func TestCallLog(t *testing.T) {
	s := New(t, Containerd2)
	r := dialRaw(t, s)
	_, _ = r.StopContainer(within(t, time.Minute), &runtimeapi.StopContainerRequest{ContainerId: "c", Timeout: 7})
	_, _ = r.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "p", Verbose: true})
	_, _ = r.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: "i"}})
	calls := s.Calls()
	if len(calls) != 3 || len(s.Calls("RemoveImage", "PodSandboxStatus")) != 2 {
		t.Fatalf("calls = %+v", calls)
	}
	if c := calls[0]; c.Method != "StopContainer" || c.ID != "c" || c.Grace != 7*time.Second || c.Left < 50*time.Second || c.Took == 0 || c.Err != "" || time.Since(c.At) > time.Minute {
		t.Errorf("call = %+v", c)
	}
	if c := calls[1]; c.ID != "p" || !c.Verbose || c.Left != 0 || !strings.Contains(c.Err, "NotFound") {
		t.Errorf("call = %+v", c)
	}
	if c := calls[2]; c.ID != "i" {
		t.Errorf("call = %+v", c)
	}
	s.ForgetCalls()
	if n := len(s.Calls()); n != 0 {
		t.Errorf("%d calls are left", n)
	}
}

// TestRestartKeepsState: the containers run on without the runtime.
func TestRestartKeepsState(t *testing.T) {
	s := New(t, Containerd2)
	r := dialRaw(t, s)
	pod := s.AddPod(PodSpec{Containers: []ContainerSpec{{}}})
	s.Restart()
	await(t, "the server answers again", func() bool {
		list, err := r.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		return err == nil && len(list.GetContainers()) == 1
	})
	if !s.Alive(pod.Containers[0].ID) {
		t.Error("the container died with the runtime")
	}
}

// TestEverythingAtOnce is for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	s := New(t, Containerd2)
	r := dialRaw(t, s)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				pod := s.AddPod(PodSpec{Containers: []ContainerSpec{{ExitAfter: time.Millisecond}, {IgnoreTERM: true}}})
				thaw := s.FreezeShim(pod.ID)
				release := s.Inject(Fault{Method: "ListContainers", Delay: time.Millisecond})
				_, _ = r.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
				_, _ = r.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
				release()
				_, _ = s.Cgroups().Kill(pod.Containers[1].Cgroup)
				thaw()
				_, _ = r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: pod.Containers[0].ID, Timeout: 5})
				_, _ = r.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod.ID})
				_, _ = r.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod.ID, Verbose: true})
				_, _ = r.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.ID})
				s.Calls()
			}
		})
	}
	wg.Wait()
	if list, err := r.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}); err != nil || len(list.GetItems()) != 0 {
		t.Errorf("left over: %v, %v", list, err)
	}
}
