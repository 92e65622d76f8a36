package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/test/lab"
)

// TestContract checks real runtimes against the behaviour that criguard relies on, with the same
// tests as the test server.
func TestContract(t *testing.T) {
	for _, runtime := range lab.Runtimes() {
		t.Run("containerd-"+runtime, func(t *testing.T) {
			node := lab.Shared(t, runtime)
			version := fmt.Sprintf("contract runs against containerd %s", node.Version())
			t.Log(version)
			fmt.Println(version)
			critest.Contract(t, target{node})
		})
	}
}

// target adapts a lab to the contract.
type target struct{ node *lab.Lab }

func (r target) Endpoint() string { return r.node.Endpoint() }

func (r target) RunPod(tb testing.TB, spec critest.PodSpec) critest.Pod {
	tb.Helper()
	request := lab.PodSpec{
		Namespace: spec.Namespace, Name: spec.Name, UID: spec.UID,
		Labels: spec.Labels, Annotations: spec.Annotations,
	}
	for _, c := range spec.Containers {
		request.TerminationGrace = max(request.TerminationGrace, c.Grace)
		request.Containers = append(request.Containers, container(c))
	}
	pod, err := r.node.RunPod(tb.Context(), request)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.node.RemovePod(context.Background(), pod); err != nil {
			tb.Error(err)
		}
	})
	out := critest.Pod{
		ID: pod.SandboxID, Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID,
		CgroupParent: pod.CgroupParent,
	}
	for i, c := range pod.Containers {
		r.settle(tb, c, spec.Containers[i].State)
		out.Containers = append(out.Containers, critest.Container{ID: c.ID, Name: c.Name, Cgroup: c.Cgroup, LogPath: c.LogPath})
	}
	return out
}

// container converts the specification of a container.
func container(spec critest.ContainerSpec) lab.ContainerSpec {
	c := lab.ContainerSpec{Name: spec.Name, MemoryLimit: spec.MemoryLimit, Created: spec.State == cri.Created}
	switch {
	case spec.State == cri.Exited:
		c.Args = []string{"exit"}
	case spec.IgnoreTERM:
		c.Args = []string{"ignore-term"}
	}
	return c
}

// settle waits until a container is in the intended state: exited, or past the point where it sets
// up its handling of SIGTERM.
func (r target) settle(tb testing.TB, c lab.RunningContainer, state cri.State) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	defer cancel()
	switch state {
	case cri.Created:
	case cri.Exited:
		if _, err := r.node.WaitExit(ctx, c.ID); err != nil {
			tb.Fatal(err)
		}
	default:
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			log, err := os.ReadFile(c.LogPath)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				tb.Fatal(err)
			}
			if strings.Contains(string(log), ": done") {
				return
			}
			select {
			case <-ctx.Done():
				tb.Fatalf("container %s has not started its work: %q", c.Name, log)
			case <-tick.C:
			}
		}
	}
}

func (r target) AddImage(tb testing.TB, ref string) {
	tb.Helper()
	if _, err := r.node.ImportImage(tb.Context(), lab.ImageSpec{Name: ref, ExtraBytes: 1 << 20}); err != nil {
		tb.Fatal(err)
	}
}

func (r target) Kill(tb testing.TB, c critest.Container) {
	tb.Helper()
	victim := lab.RunningContainer{ID: c.ID, Cgroup: c.Cgroup}
	if err := r.node.KillContainer(tb.Context(), victim); err != nil {
		tb.Fatal(err)
	}
}

func (r target) FreezeShim(tb testing.TB, podID string) func() {
	tb.Helper()
	if err := r.node.PauseShim(podID); err != nil {
		tb.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if err := r.node.ResumeShim(podID); err != nil {
			tb.Error(err)
		}
	})
}
