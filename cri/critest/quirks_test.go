package critest

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
)

// raw calls the CRI of a server without package cri.
type raw struct {
	runtimeapi.RuntimeServiceClient
	runtimeapi.ImageServiceClient
}

func dialRaw(t *testing.T, s *Server) raw {
	t.Helper()
	conn, err := grpc.NewClient(s.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return raw{runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)}
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("got %v, want code %s", err, want)
	}
}

func eachDialect(t *testing.T, test func(t *testing.T, d Dialect, s *Server, r raw)) {
	for _, d := range Dialects() {
		t.Run(d.String(), func(t *testing.T) {
			s := New(t, d)
			test(t, d, s, dialRaw(t, s))
		})
	}
}

// leave makes a call and cancels it once it has arrived.
func leave(t *testing.T, s *Server, method string, call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := len(s.Calls(method))
	left := async(func() error { return call(ctx) })
	s.WaitCalls(t, method, before+1)
	cancel()
	return <-left
}

// await waits for a condition that another goroutine brings about.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}

func TestStopCutShort(t *testing.T) {
	eachDialect(t, func(t *testing.T, d Dialect, s *Server, r raw) {
		id := s.AddPod(PodSpec{Containers: []ContainerSpec{{IgnoreTERM: true}}}).Containers[0].ID
		wantCode(t, leave(t, s, "StopContainer", func(ctx context.Context) error {
			_, err := r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1})
			return err
		}), codes.Canceled)
		if d == CRIO { // the stop continues by itself
			await(t, "the container is killed", func() bool { return !s.Alive(id) })
			return
		}
		time.Sleep(1200 * time.Millisecond) // past the time of the kill
		if !s.Alive(id) {
			t.Error("containerd killed after the call had ended")
		}
	})
}

func TestKillOrTerm(t *testing.T) {
	eachDialect(t, func(t *testing.T, d Dialect, s *Server, r raw) {
		id := s.AddPod(PodSpec{Containers: []ContainerSpec{{}}}).Containers[0].ID
		if _, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		resp, err := r.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		want := int32(137)
		if d == CRIO { // also sends SIGTERM
			want = 0
		}
		if got := resp.GetStatus().GetExitCode(); got != want {
			t.Errorf("exit code = %d, want %d", got, want)
		}
	})
}

func TestMissingIDs(t *testing.T) {
	eachDialect(t, func(t *testing.T, d Dialect, _ *Server, r raw) {
		want := codes.OK
		if d == Containerd16 {
			want = codes.NotFound
		}
		_, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: "none"})
		wantCode(t, err, want)
		_, err = r.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: "none"})
		wantCode(t, err, want)
		_, err = r.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: "none"})
		wantCode(t, err, codes.OK)
	})
}

// TestRemoveRunning: the runtime kills a running container or sandbox without warning.
func TestRemoveRunning(t *testing.T) {
	eachDialect(t, func(t *testing.T, _ Dialect, s *Server, r raw) {
		pod := s.AddPod(PodSpec{Containers: []ContainerSpec{{}, {}}})
		first, second := pod.Containers[0].ID, pod.Containers[1].ID
		if _, err := r.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: first}); err != nil {
			t.Fatal(err)
		}
		if s.Has(first) || s.Alive(first) || !s.Alive(second) {
			t.Error("the wrong thing was removed")
		}
		if _, err := r.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.ID}); err != nil {
			t.Fatal(err)
		}
		if s.Has(pod.ID) || s.Has(second) || s.Alive(second) {
			t.Error("something is left of the sandbox")
		}
	})
}

func TestRemoveImage(t *testing.T) {
	eachDialect(t, func(t *testing.T, d Dialect, s *Server, r raw) {
		remove := func(ref string) error {
			_, err := r.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
			return err
		}
		tags := func(id string) []string {
			list, err := r.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, img := range list.GetImages() {
				if img.GetId() == id {
					return img.GetRepoTags()
				}
			}
			return nil
		}
		id := s.AddImage(ImageSpec{Tags: []string{"registry.local/a:1", "registry.local/a:2"}, Digests: []string{"registry.local/a@sha256:" + digest("x", 0)}})
		s.AddPod(PodSpec{Containers: []ContainerSpec{{Image: "registry.local/a:1", State: cri.Exited}}})
		if d != CRIO { // any name removes the whole image, in use or not
			if err := remove("registry.local/a:2"); err != nil || s.Has(id) {
				t.Errorf("remove by tag: %v, image is there: %t", err, s.Has(id))
			}
			return
		}
		if err := remove("registry.local/a@sha256:" + digest("x", 0)); err != nil || !s.Has(id) || len(tags(id)) != 2 {
			t.Errorf("remove by digest: %v, %v", err, tags(id))
		}
		if err := remove("registry.local/a:2"); err != nil || !slices.Equal(tags(id), []string{"registry.local/a:1"}) {
			t.Errorf("remove by tag: %v, %v", err, tags(id))
		}
		wantCode(t, remove(id), codes.Unknown)
		wantCode(t, remove("registry.local/a:1"), codes.Unknown)
		if err := remove(""); err == nil {
			t.Error("removed nothing in particular")
		}
		artifact := s.AddImage(ImageSpec{Tags: []string{"registry.local/model:1"}, Artifact: true})
		if err := remove(artifact); err != nil || !s.Has(artifact) {
			t.Errorf("remove an artifact by its id: %v, it is there: %t", err, s.Has(artifact))
		}
		if err := remove("registry.local/model@sha256:" + artifact); err != nil || s.Has(artifact) {
			t.Errorf("remove an artifact by its name: %v, it is there: %t", err, s.Has(artifact))
		}
	})
}

// TestPauseImage: CRI-O's store protects the pause image while there are sandboxes. containerd pins it
// from 1.6.22 on, and removes it all the same.
func TestPauseImage(t *testing.T) {
	eachDialect(t, func(t *testing.T, d Dialect, s *Server, r raw) {
		s.AddPod(PodSpec{})
		list, err := r.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		pause := list.GetImages()[0]
		if pause.GetPinned() == (d == Containerd16) {
			t.Errorf("pinned: %t", pause.GetPinned())
		}
		_, err = r.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: pause.GetId()}})
		if s.Has(pause.GetId()) != (d == CRIO) || (err != nil) != (d == CRIO) {
			t.Errorf("removed: %t, %v", !s.Has(pause.GetId()), err)
		}
	})
}

// TestImageNames checks which name of its image each field of a container holds.
func TestImageNames(t *testing.T) {
	eachDialect(t, func(t *testing.T, d Dialect, s *Server, r raw) {
		id := s.AddImage(ImageSpec{Tags: []string{"registry.local/a:1", "registry.local/a:2"}})
		ctr := s.AddPod(PodSpec{Containers: []ContainerSpec{{Image: "registry.local/a:2"}}}).Containers[0].ID
		list, err := r.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		listed := list.GetContainers()[0]
		one, err := r.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: ctr})
		if err != nil {
			t.Fatal(err)
		}
		st := one.GetStatus()
		if listed.GetImage().GetImage() != "registry.local/a:2" {
			t.Errorf("listed image = %q", listed.GetImage().GetImage())
		}
		if (listed.GetImageRef() == id) != (d != CRIO) || st.GetImageRef() == id {
			t.Errorf("image_ref = %q, in the status %q", listed.GetImageRef(), st.GetImageRef())
		}
		if (st.GetImage().GetImage() == "registry.local/a:1") != (d != CRIO) {
			t.Errorf("image of the status = %q", st.GetImage().GetImage())
		}
		if (listed.GetImageId() == id) != (d != Containerd16) {
			t.Errorf("image_id = %q", listed.GetImageId())
		}
	})
}

// TestCgroups: the kernel knows the processes even if the runtime does not.
func TestCgroups(t *testing.T) {
	eachDialect(t, func(t *testing.T, _ Dialect, s *Server, _ raw) {
		pod := s.AddPod(PodSpec{Containers: []ContainerSpec{{Processes: 3}, {}}})
		g, ctr := s.Cgroups(), pod.Containers[0]
		thaw := s.FreezeShim(pod.ID)
		if populated, err := g.Populated(ctr.Cgroup); !populated || err != nil {
			t.Errorf("populated: %t, %v", populated, err)
		}
		if n, err := g.Kill(ctr.Cgroup); n != 3 || err != nil {
			t.Errorf("killed %d, %v", n, err)
		}
		if populated, err := g.Populated(ctr.Cgroup); populated || err != nil {
			t.Errorf("populated after the kill: %t, %v", populated, err)
		}
		if populated, err := g.Populated(pod.CgroupParent); !populated || err != nil {
			t.Errorf("pod populated: %t, %v", populated, err)
		}
		thaw()
		if populated, err := g.Populated(ctr.Cgroup); populated || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the runtime left the cgroup: %t, %v", populated, err)
		}
		if _, err := g.Kill(ctr.Cgroup); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("kill in a cgroup that is gone: %v", err)
		}
		if n, err := g.Kill(pod.CgroupParent); n == 0 || err != nil {
			t.Errorf("killed %d, %v", n, err)
		}
		if populated, _ := g.Populated(pod.CgroupParent); populated {
			t.Error("pod is populated after the kill")
		}
	})
}
