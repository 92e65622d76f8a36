package stop

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// options returns options for a runtime, with retries every 10 ms.
func options(t *testing.T, srv *critest.Server) Options {
	t.Helper()
	cfg := configtest.Parse(t, nodetest.Config(t))
	cfg.Eviction.Interval = 10 * time.Millisecond
	layout, err := cgroup.Detect(cgroup.Root(filepath.Join(cfg.Node.Sys, "fs/cgroup")), cgroup.Proc(cfg.Node.Proc))
	if err != nil {
		t.Fatal(err)
	}
	conn := cri.NewConnector(cri.ConnectorOptions{Endpoint: srv.Endpoint(), Timeout: cfg.Runtime.Timeout, Now: cgroup.BootTime})
	t.Cleanup(conn.Close)
	if err := conn.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	return Options{
		Config: func() config.Config { return cfg }, Runtime: conn, Cgroups: layout, Stopping: func(inventory.Pod) {}, Ended: func() {},
	}
}

// A stop asks the runtime for its own pod alone: its containers, then its sandbox, which the runtime confirms.
func TestStopsItsPodAlone(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	o := options(t, srv)
	spec := critest.PodSpec{Containers: []critest.ContainerSpec{{Name: "main", State: cri.Running}}}
	other, pod := srv.AddPod(spec), srv.AddPod(spec)
	s := New(t.Context(), o)
	job := s.Stop(t.Context(), eviction.StopOrder{
		Grace: time.Hour, Pod: inventory.Pod{Candidate: policy.Candidate{ID: pod.ID}, Containers: []inventory.Container{{ID: pod.Containers[0].ID}}},
	})
	s.Wait()
	if r := job.Outcome().Result; !r.Emptied || !r.Confirmed || len(r.Errors) > 0 {
		t.Errorf("%+v", r)
	}
	if srv.Alive(pod.Containers[0].ID) || !srv.Alive(other.Containers[0].ID) {
		t.Errorf("alive: its own %t, the other's %t", srv.Alive(pod.Containers[0].ID), srv.Alive(other.Containers[0].ID))
	}
	for method, want := range map[string]string{"StopContainer": pod.Containers[0].ID, "StopPodSandbox": pod.ID} {
		calls := srv.Calls(method)
		if len(calls) == 0 || slices.ContainsFunc(calls, func(c critest.Call) bool { return c.ID != want }) {
			t.Errorf("%s: %+v, want %s", method, calls, want)
		}
	}
}

// If the runtime of a stop in flight goes away, and the connector moves to another one, that one would answer that the pod is
// stopped, because it does not know it.
func TestStopAsksNoOtherRuntime(t *testing.T) {
	for name, dialect := range map[string]critest.Dialect{"containerd": critest.Containerd16, "CRI-O": critest.CRIO} {
		own, other := critest.New(t, critest.Containerd2), critest.New(t, dialect)
		pod := own.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{Name: "main", State: cri.Running}}})
		other.AddPod(critest.PodSpec{})
		clock := time.Hour
		conn := cri.NewConnector(cri.ConnectorOptions{Known: []string{own.Endpoint(), other.Endpoint()}, Now: func() time.Duration { return clock }})
		t.Cleanup(conn.Close)
		if err := conn.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		stops := stopsAt(conn)
		own.Stop()
		nodetest.Await(t, "the connector moves", func() bool {
			clock += time.Hour
			err := conn.Connect(t.Context())
			at, _ := conn.Version()
			return err == nil && at == other.Endpoint()
		})
		for call, err := range map[string]error{
			"StopContainer":  stops.StopContainer(t.Context(), pod.Containers[0].ID, 0),
			"StopPodSandbox": stops.StopSandbox(t.Context(), pod.ID),
		} {
			if asked := other.Calls(call); !errors.Is(err, cri.ErrUnavailable) || len(asked) > 0 {
				t.Errorf("%s: %s: %v; the other runtime was asked %v", name, call, err, asked)
			}
		}
	}
}

// A stop in flight that is told to discard removes the pod's containers when they have ended.
func TestDiscardByAStopInFlight(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	pod := srv.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{Name: "main", State: cri.Running}}})
	s := New(t.Context(), options(t, srv))
	job := s.Stop(t.Context(), eviction.StopOrder{
		Grace: time.Hour, Pod: inventory.Pod{Candidate: policy.Candidate{ID: pod.ID}, Containers: []inventory.Container{{ID: pod.Containers[0].ID}}},
	})
	job.Discard(true, false)
	s.Wait()
	if calls := srv.Calls("RemoveContainer"); len(calls) != 1 || calls[0].ID != pod.Containers[0].ID {
		t.Errorf("removed %+v", calls)
	}
}

// The containers of a stopped pod on a full disk are removed as soon as the runtime can. The retries end if a
// container is already gone or runs after all.
func TestDiscard(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	o := options(t, srv)
	pod := srv.AddPod(critest.PodSpec{Name: "writer", Containers: []critest.ContainerSpec{
		{Name: "full", State: cri.Exited}, {Name: "back", State: cri.Running}, {Name: "gone", State: cri.Exited},
	}})
	full, back, gone := pod.Containers[0].ID, pod.Containers[1].ID, pod.Containers[2].ID
	srv.Forget(gone)
	srv.Inject(critest.Fault{Method: "RemoveContainer", ID: full, Times: 3, Err: errors.New("no space left on device")})
	s := New(t.Context(), o)
	s.discard(eviction.StopOrder{Discard: true, Pod: inventory.Pod{Containers: []inventory.Container{{ID: full}, {ID: back}, {ID: gone}}}}, false)
	if srv.Has(full) || !srv.Has(back) {
		t.Errorf("full is there: %t; back is there: %t", srv.Has(full), srv.Has(back))
	}
	if got := srv.Calls("RemoveContainer"); len(got) != 4 {
		t.Errorf("asked %d times: %v", len(got), got)
	}
}

// A container with an empty cgroup is dead, even while the runtime still reports it as running. That the runtime has
// removed it does not say that its files are deleted.
func TestDiscardAwaitsTheRuntime(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	o := options(t, srv)
	pod := srv.AddPod(critest.PodSpec{Name: "writer", Containers: []critest.ContainerSpec{{Name: "full", State: cri.Running}}})
	id := pod.Containers[0].ID
	srv.Inject(critest.Fault{Method: "ContainerStatus", ID: id, Times: 3, Edit: func(resp any) {
		resp.(*runtimeapi.ContainerStatusResponse).Status.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	}})
	s := New(t.Context(), o)
	job := s.Stop(t.Context(), eviction.StopOrder{Discard: true, Pod: inventory.Pod{
		Candidate: policy.Candidate{ID: pod.ID}, Containers: []inventory.Container{{ID: id}},
	}})
	s.Wait()
	if out := job.Outcome(); !out.Result.Emptied || out.Returned || srv.Has(id) {
		t.Errorf("emptied: %t; the container is there: %t", job.Outcome().Result.Emptied, srv.Has(id))
	}
	if asked, removed := srv.Calls("ContainerStatus"), srv.Calls("RemoveContainer"); len(asked) != 4 || len(removed) != 1 {
		t.Errorf("%d times asked, %d times removed", len(asked), len(removed))
	}
}

// A container that was never started is removed with the emptied pod. If the pod may still run, it may still be started.
func TestDiscardOfACreatedContainer(t *testing.T) {
	for _, emptied := range []bool{true, false} {
		srv := critest.New(t, critest.Containerd2)
		pod := srv.AddPod(critest.PodSpec{Name: "writer", Containers: []critest.ContainerSpec{{Name: "next", State: cri.Created}}})
		id := pod.Containers[0].ID
		s := New(t.Context(), options(t, srv))
		s.discard(eviction.StopOrder{Discard: true, Pod: inventory.Pod{Containers: []inventory.Container{{ID: id}}}}, emptied)
		if srv.Has(id) == emptied {
			t.Errorf("emptied: %t; the container is there: %t", emptied, srv.Has(id))
		}
	}
}

// A pod's dead containers, their logs, or both are removed at once, including those that ended before the
// stop: a network plugin can delay the runtime's confirmation of the stop for a minute.
func TestDiscardWhileTheSandboxCannotBeStopped(t *testing.T) {
	for name, c := range map[string]struct{ containers, logs bool }{
		"containers and logs": {true, true}, "containers": {true, false}, "logs": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			srv := critest.New(t, critest.Containerd2)
			o := options(t, srv)
			o.Logs.Dir = t.TempDir()
			log := func(attempt string) string { return filepath.Join(o.Logs.Dir, "d_writer_uid", "full", attempt+".log") }
			pod := srv.AddPod(critest.PodSpec{Name: "writer", Containers: []critest.ContainerSpec{
				{Name: "full", State: cri.Running, Attempt: 1, LogPath: log("1")}, {Name: "full", State: cri.Exited, LogPath: log("0")},
			}})
			files := []string{log("0"), log("1"), log("1") + ".20261122-120000.gz"}
			for _, f := range files {
				nodetest.Write(t, filepath.Dir(f), map[string]string{filepath.Base(f): ""})
			}
			srv.Inject(critest.Fault{Method: "StopPodSandbox", Times: 1e6, Err: errors.New("plugin failed")})
			ctx, end := context.WithCancel(t.Context())
			defer end()
			s := New(ctx, o)
			job := s.Stop(ctx, eviction.StopOrder{Discard: c.containers, DiscardLogs: c.logs, Pod: inventory.Pod{
				Candidate: policy.Candidate{ID: pod.ID}, Containers: []inventory.Container{{ID: pod.Containers[0].ID}},
			}})
			nodetest.Await(t, "only what is discarded is gone", func() bool {
				containers, logs := false, false
				for _, ctr := range pod.Containers {
					containers = containers || srv.Has(ctr.ID)
				}
				for _, f := range files {
					_, err := os.Stat(f)
					logs = logs || err == nil
				}
				return containers == !c.containers && logs == !c.logs
			})
			if r := job.Outcome().Result; !r.Emptied || r.Confirmed {
				t.Errorf("%+v", r)
			}
			end()
			s.Wait()
		})
	}
}

// A pod that was killed directly ends without the runtime. So the record of its stop does not depend on how soon a runtime
// that is away fails.
func TestDirectStopWithoutRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{
			Config: func() config.Config { return config.Config{} }, Runtime: cri.NewConnector(cri.ConnectorOptions{}),
			Cgroups: ended{}, Stopping: func(inventory.Pod) {}, Ended: func() {},
		}
		s := New(t.Context(), o)
		job := s.Stop(t.Context(), eviction.StopOrder{Direct: true, Pod: inventory.Pod{Containers: []inventory.Container{{ID: "leak", Cgroup: "/pod/leak"}}}})
		<-job.Done()
		synctest.Wait() // until the runtime has failed
		if got := job.Outcome().Result; !got.Emptied || len(got.Errors) > 0 {
			t.Errorf("%+v", got)
		}
		s.Wait()
	})
}

// The loop wakes when a pod has ended, and again when the runtime may have given back its files in memory.
func TestEnded(t *testing.T) {
	for shared, want := range map[int64]int{0: 1, 2 << 20: 2} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			s := New(t.Context(), Options{
				Config: func() config.Config { return config.Config{} }, Runtime: cri.NewConnector(cri.ConnectorOptions{}),
				Cgroups: ended{shared}, Stopping: func(inventory.Pod) {}, Ended: func() { calls++ },
			})
			pod := inventory.Pod{Candidate: policy.Candidate{ID: "pod"}, Cgroup: "/pod", Containers: []inventory.Container{{ID: "leak", Cgroup: "/pod/leak"}}}
			s.Stop(t.Context(), eviction.StopOrder{Direct: true, Pod: pod})
			if s.Wait(); calls != want {
				t.Errorf("with %d bytes in files: called %d times, want %d", shared, calls, want)
			}
		})
	}
}

// ended is cgroups in which all processes end as soon as they are killed, with so many bytes in files in memory.
type ended struct{ shared int64 }

func (ended) Kill(string) (int, error)             { return 1, nil }
func (ended) Populated(string) (bool, error)       { return false, nil }
func (e ended) SharedMemory(string) (int64, error) { return e.shared, nil }

// A stop that the end of the service cuts short in its grace period says so.
func TestStopperEnds(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	o := options(t, srv)
	pod := srv.AddPod(critest.PodSpec{Name: "slow", Containers: []critest.ContainerSpec{{Name: "main", State: cri.Running}}})
	srv.Inject(critest.Fault{Method: "StopContainer", Hang: true})
	ctx, end := context.WithCancel(t.Context())
	s := New(ctx, o)
	job := s.Stop(ctx, eviction.StopOrder{
		Grace: time.Hour, Pod: inventory.Pod{Candidate: policy.Candidate{ID: pod.ID}, Containers: []inventory.Container{{ID: pod.Containers[0].ID}}},
	})
	end()
	s.Wait()
	if got := job.Outcome().Result; got.Emptied || !slices.Equal(got.Errors, []string{errEnded.Error()}) {
		t.Errorf("%+v", got)
	}
}

// A service that ends right after a stop leaves no unstopped pod behind. It does not wait forever for a
// hung runtime.
func TestStopperWaits(t *testing.T) {
	for name, hangs := range map[string]bool{"slow": false, "hung": true} {
		t.Run(name, func(t *testing.T) {
			srv := critest.New(t, critest.Containerd2)
			o := options(t, srv)
			pod := srv.AddPod(critest.PodSpec{Name: "leaky", Containers: []critest.ContainerSpec{{Name: "main", State: cri.Running}}})
			release := srv.Inject(critest.Fault{Method: "StopPodSandbox", Hang: true})
			ctx, end := context.WithCancel(t.Context())
			defer end()
			s := New(ctx, o)
			// Its cgroup is unknown, so the runtime's answer counts.
			job := s.Stop(ctx, eviction.StopOrder{Pod: inventory.Pod{Candidate: policy.Candidate{ID: pod.ID}, Containers: []inventory.Container{{ID: pod.Containers[0].ID}}}})
			<-job.Done()
			if job.Outcome().Result.Confirmed {
				t.Fatal("confirmed before the sandbox was stopped")
			}
			if hangs {
				time.AfterFunc(50*time.Millisecond, end)
			} else {
				release()
			}
			if s.Wait(); job.Outcome().Result.Confirmed == hangs {
				t.Errorf("confirmed: %t", !hangs)
			}
		})
	}
}

// A log that cannot be removed, as on a filesystem that has become read-only, keeps no container. It is tried again, unless the pod has
// come back meanwhile: then it may be the new container's.
func TestDiscardTriesLogsAgain(t *testing.T) {
	for _, back := range []bool{false, true} {
		testDiscardTriesLogsAgain(t, back)
	}
}

func testDiscardTriesLogsAgain(t *testing.T, back bool) {
	t.Helper()
	srv := critest.New(t, critest.Containerd2)
	o := options(t, srv)
	dir := t.TempDir()
	base, logs := filepath.Join(dir, "logs"), filepath.Join(dir, "real")
	if err := os.WriteFile(base, nil, 0o600); err != nil { // not a directory
		t.Fatal(err)
	}
	o.Logs = reclaim.Logs{Dir: base}
	log := filepath.Join(base, "d_writer_u/full/0.log")
	pod := srv.AddPod(critest.PodSpec{Name: "writer", UID: "u", Containers: []critest.ContainerSpec{{Name: "full", LogPath: log, State: cri.Exited}}})
	full := pod.Containers[0].ID
	done := make(chan struct{})
	go func() {
		defer close(done)
		New(t.Context(), o).discard(eviction.StopOrder{Discard: true, DiscardLogs: true, Pod: inventory.Pod{Containers: []inventory.Container{{ID: full}}}}, false)
	}()
	nodetest.Await(t, "the container is gone", func() bool { return !srv.Has(full) })
	for asked := len(srv.Calls("ContainerStatus")); len(srv.Calls("ContainerStatus")) < asked+2; { // the second one begins after the first has failed
		runtime.Gosched()
	}
	if back {
		srv.AddPod(critest.PodSpec{Name: "writer", UID: "u", Attempt: 1, Containers: []critest.ContainerSpec{{Name: "full", LogPath: log}}})
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(logs, "d_writer_u/full"), 0o755), os.WriteFile(filepath.Join(logs, "d_writer_u/full/0.log"), []byte("full"), 0o600),
		os.Symlink(logs, base+"2"), os.Rename(base+"2", base)); err != nil {
		t.Fatal(err)
	}
	<-done
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) == back {
		t.Errorf("the pod is back: %t; the log: %v", back, err)
	}
}

// A log directory on a disk that stalls keeps no container: the layers are what fills the other disk. The logs are removed
// once the disk answers again.
func TestDiscardWithStalledLogs(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	o := options(t, srv)
	dir := t.TempDir()
	base, pipe, answers := filepath.Join(dir, "logs"), filepath.Join(dir, "pipe"), filepath.Join(dir, "answers")
	// Opening a pipe for reading waits for a writer, like a read waits for a disk.
	if err := syscall.Mkfifo(base, 0o600); err != nil {
		t.Fatal(err)
	}
	o.Logs = reclaim.Logs{Dir: base}
	var containers []critest.ContainerSpec
	for _, name := range []string{"a", "b"} {
		nodetest.Write(t, filepath.Join(answers, "d_writer_u", name), map[string]string{"0.log": "full"})
		containers = append(containers, critest.ContainerSpec{Name: name, State: cri.Exited, LogPath: filepath.Join(base, "d_writer_u", name, "0.log")})
	}
	pod := srv.AddPod(critest.PodSpec{Name: "writer", Containers: containers})
	order := eviction.StopOrder{Discard: true, DiscardLogs: true}
	for _, c := range pod.Containers {
		order.Pod.Containers = append(order.Pod.Containers, inventory.Container{ID: c.ID})
	}
	s := New(t.Context(), o)
	s.logs.Wait = time.Millisecond
	done := make(chan struct{})
	go func() { defer close(done); s.discard(order, true) }()
	nodetest.Await(t, "the containers are gone", func() bool { return !srv.Has(pod.Containers[0].ID) && !srv.Has(pod.Containers[1].ID) })
	select {
	case <-done:
		t.Fatal("it has ended without the logs")
	default:
	}
	if err := errors.Join(os.Rename(base, pipe), os.Rename(answers, base)); err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = end.Close()
	<-done
	if left, err := filepath.Glob(filepath.Join(base, "*", "*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
