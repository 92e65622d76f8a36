package guard

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
	s.discard(StopOrder{Discard: true, Pod: Pod{Containers: []PodContainer{{ID: full}, {ID: back}, {ID: gone}}}}, false)
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

// What the dead containers of a pod wrote goes as soon as they are dead, those that had ended
// before the stop included: a network plugin keeps the runtime from confirming the stop for a minute.
func TestDiscardWhileTheSandboxCannotBeStopped(t *testing.T) {
	for name, c := range map[string]struct{ containers, logs bool }{
		"containers and logs": {true, true}, "containers": {true, false}, "logs": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			srv := critest.New(t, critest.Containerd2)
			n := connectedNode(t, srv)
			n.podLogs = t.TempDir()
			log := func(attempt string) string { return filepath.Join(n.podLogs, "d_writer_uid", "full", attempt+".log") }
			pod := srv.AddPod(critest.PodSpec{Name: "writer", Containers: []critest.ContainerSpec{
				{Name: "full", State: cri.Running, Attempt: 1, LogPath: log("1")}, {Name: "full", State: cri.Exited, LogPath: log("0")},
			}})
			if err := os.MkdirAll(filepath.Dir(log("0")), 0o755); err != nil {
				t.Fatal(err)
			}
			files := []string{log("0"), log("1"), log("1") + ".20261122-120000.gz"}
			for _, f := range files {
				if err := os.WriteFile(f, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			srv.Inject(critest.Fault{Method: "StopPodSandbox", Times: 1e6, Err: errors.New("plugin failed")})
			ctx, end := context.WithCancel(t.Context())
			defer end()
			s := &stopper{node: n, ctx: ctx, stopped: func(Pod) {}}
			job := s.Stop(ctx, StopOrder{Discard: c.containers, DiscardLogs: c.logs, Pod: Pod{
				Candidate: policy.Candidate{ID: pod.ID}, Containers: []PodContainer{{ID: pod.Containers[0].ID}},
			}})
			left := func() (containers, logs bool) {
				for _, ctr := range pod.Containers {
					containers = containers || srv.Has(ctr.ID)
				}
				for _, f := range files {
					_, err := os.Stat(f)
					logs = logs || err == nil
				}
				return containers, logs
			}
			for begin := time.Now(); ; time.Sleep(time.Millisecond) {
				containers, logs := left()
				if containers == !c.containers && logs == !c.logs {
					break
				}
				if time.Since(begin) > time.Minute {
					t.Fatalf("containers are left: %t, logs are left: %t", containers, logs)
				}
			}
			if r := job.Outcome().Result; !r.Emptied || r.Confirmed {
				t.Errorf("%+v", r)
			}
			end()
			s.wait()
		})
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
			release := srv.Inject(critest.Fault{Method: "StopPodSandbox", Hang: true})
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
			} else {
				release()
			}
			if s.wait(); job.Outcome().Result.Confirmed == hangs {
				t.Errorf("confirmed: %t", !hangs)
			}
		})
	}
}
