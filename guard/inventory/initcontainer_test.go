package inventory

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// initSource is a pod of an init container, which ended after ten seconds, and of two others, one of which has
// crashed and waits to be restarted.
type initSource struct {
	fixedSource
	asked map[string]int
	code  int32 // exit code of the one that has crashed
}

func (s initSource) ContainerDetail(ctx context.Context, id string) (cri.ContainerDetail, error) {
	s.asked[id]++
	d, err := s.fixedSource.ContainerDetail(ctx, id)
	switch id {
	case "setup":
		d.FinishedAt = time.Unix(1010, 0)
	case "crashed":
		d.FinishedAt, d.ExitCode = time.Unix(1099, 0), s.code
	}
	return d, err
}

// An init container that has ended does not add to a pod's request; one that has crashed does. The runtime is
// asked only once when each of them ended.
func TestListerKnowsInitContainers(t *testing.T) {
	container := func(name string, state cri.State, created int64) cri.Container {
		return cri.Container{ID: name, SandboxID: "s", Name: name, State: state, CreatedAt: time.Unix(created, 0)}
	}
	src := initSource{asked: map[string]int{}, fixedSource: fixedSource{
		sandboxes:  []cri.Sandbox{{ID: "s", UID: "uid", Ready: true}},
		containers: []cri.Container{container("setup", cri.Exited, 1000), container("crashed", cri.Exited, 1011), container("main", cri.Running, 1012)},
	}}
	l := newTestLister(t, critest.New(t, critest.Containerd2), cgroup.Layout{})
	l.opt.Source = func(context.Context) (Source, error) { return src, nil }
	root := t.TempDir()
	l.kubelet = newKubeletState(func() string { return root })
	state := `{"data":"{\"entries\":{\"uid\":{\"ContainerResources\":{` +
		`\"setup\":{\"requests\":{\"memory\":\"5\"}},\"crashed\":{\"requests\":{\"memory\":\"20\"}},\"main\":{\"requests\":{\"memory\":\"300\"}}}}}}"}`
	if err := os.WriteFile(filepath.Join(root, KubeletStateFile), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if pods := l.List(t.Context()).Pods; len(pods) != 1 || pods[0].MemoryRequest != 320 || pods[0].RequestSource != "kubelet state" {
			t.Errorf("listed %+v", pods)
		}
	}
	// Another one was restarted after it.
	restarted := container("main", cri.Running, 1100)
	restarted.ID, restarted.Attempt = "main again", 1
	for code, want := range map[int32]int64{0: 300, 137: 320} { // what ends with code 0 looks like an init container
		again := initSource{src.fixedSource, map[string]int{}, code}
		again.containers = append(slices.Clone(again.containers), restarted)
		l.opt.Source, l.ends = func(context.Context) (Source, error) { return again, nil }, nil
		if pods := l.List(t.Context()).Pods; len(pods) != 1 || pods[0].MemoryRequest != want {
			t.Errorf("exit code %d: listed %+v, want a request of %d", code, pods, want)
		}
	}
	if src.asked["setup"] != 1 || src.asked["crashed"] != 1 {
		t.Errorf("asked for %v", src.asked)
	}
}
