package guard

import (
	"context"
	"errors"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/policy"
)

// What a stopped pod left on a full disk goes as soon as the runtime can remove it;
// what is gone already, or runs after all, is no reason to ask for ever.
func TestDiscard(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	n := connectedNode(t, srv)
	n.cfg.Eviction.Interval = 10 * time.Millisecond
	pod := srv.AddPod(critest.PodSpec{Name: "writer", Containers: []critest.ContainerSpec{
		{Name: "full", State: cri.Exited}, {Name: "back", State: cri.Running}, {Name: "gone", State: cri.Exited},
	}})
	full, back, gone := pod.Containers[0].ID, pod.Containers[1].ID, pod.Containers[2].ID
	srv.Forget(gone)
	srv.Inject(critest.Fault{Method: "RemoveContainer", ID: full, Times: 3, Err: errors.New("no space left on device")})
	s := &stopper{node: n, ctx: t.Context(), stopped: func(Pod) {}}
	s.discard(Pod{Containers: []PodContainer{{ID: full}, {ID: back}, {ID: gone}}}, false)
	if srv.Has(full) || !srv.Has(back) {
		t.Errorf("full is there: %t; back is there: %t", srv.Has(full), srv.Has(back))
	}
	if got := srv.Calls("RemoveContainer"); len(got) != 4 {
		t.Errorf("asked %d times: %v", len(got), got)
	}
}

// A container whose cgroup is empty is dead, also while the runtime still calls it running.
func TestDiscardAwaitsTheRuntime(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	n := connectedNode(t, srv)
	n.cfg.Eviction.Interval = 10 * time.Millisecond
	pod := srv.AddPod(critest.PodSpec{Name: "writer", Containers: []critest.ContainerSpec{{Name: "full", State: cri.Running}}})
	id := pod.Containers[0].ID
	srv.Inject(critest.Fault{Method: "ContainerStatus", ID: id, Times: 3, Edit: func(resp any) {
		resp.(*runtimeapi.ContainerStatusResponse).Status.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	}})
	s := &stopper{node: n, ctx: t.Context(), stopped: func(Pod) {}}
	job := s.Stop(t.Context(), StopOrder{Discard: true, Pod: Pod{
		Candidate: policy.Candidate{ID: pod.ID}, Containers: []PodContainer{{ID: id}},
	}})
	s.wait()
	if !job.Outcome().Result.Emptied || srv.Has(id) {
		t.Errorf("emptied: %t; the container is there: %t", job.Outcome().Result.Emptied, srv.Has(id))
	}
	if asked, removed := srv.Calls("ContainerStatus"), srv.Calls("RemoveContainer"); len(asked) != 4 || len(removed) != 1 {
		t.Errorf("%d times asked, %d times removed", len(asked), len(removed))
	}
}

// Whoever ends the service right after a stop does not leave a sandbox behind that nobody
// told to stop; a runtime that hangs is not waited for for ever.
func TestStopperWaits(t *testing.T) {
	for name, hangs := range map[string]bool{"slow": false, "hung": true} {
		t.Run(name, func(t *testing.T) {
			srv := critest.New(t, critest.Containerd2)
			n := connectedNode(t, srv)
			pod := srv.AddPod(critest.PodSpec{Name: "leaky", Containers: []critest.ContainerSpec{{Name: "main", State: cri.Running}}})
			srv.Inject(critest.Fault{Method: "StopPodSandbox", Delay: 200 * time.Millisecond, Hang: hangs})
			ctx, end := context.WithCancel(t.Context())
			defer end()
			s := &stopper{node: n, ctx: ctx, stopped: func(Pod) {}}
			// Its cgroup is not known, so that the runtime's word counts.
			job := s.Stop(ctx, StopOrder{Pod: Pod{Candidate: policy.Candidate{ID: pod.ID}, Containers: []PodContainer{{ID: pod.Containers[0].ID}}}})
			<-job.Done()
			if job.Outcome().Result.Confirmed {
				t.Fatal("confirmed before the sandbox was stopped")
			}
			if hangs {
				time.AfterFunc(50*time.Millisecond, end)
			}
			if s.wait(); job.Outcome().Result.Confirmed == hangs {
				t.Errorf("confirmed: %t", !hangs)
			}
		})
	}
}
