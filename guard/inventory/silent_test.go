package inventory

import (
	"context"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// bare is a runtime that reports no more of a container than that it has run, as cri-dockerd does.
type bare struct {
	Source
	asked int
}

func (b *bare) ContainerDetail(ctx context.Context, id string) (cri.ContainerDetail, error) {
	b.asked++
	d, err := b.Source.ContainerDetail(ctx, id)
	d.CgroupsPath, d.Resources.OOMScoreAdj, d.PID = "", cri.Number{}, 0
	return d, err
}

// Where an exited container does not show the class of its pod, this stays protected, and the runtime is not asked each time.
func TestListerWithoutTheClassOfAnExitedContainer(t *testing.T) {
	s := critest.New(t, critest.Containerd2)
	pod := s.AddPod(critest.PodSpec{})
	s.Exit(s.AddContainer(pod.ID, critest.ContainerSpec{OOMScoreAdj: adjBestEffort}).ID, 1)
	l := newTestLister(t, s, cgroup.Layout{})
	source, b := l.opt.Source, &bare{}
	l.opt.Source = func(ctx context.Context) (Source, error) {
		src, err := source(ctx)
		b.Source = src
		return b, err
	}
	for range 3 {
		if pods := l.List(t.Context()).Pods; len(pods) != 1 || pods[0].Protection != ProtectedUnclassified {
			t.Fatalf("%+v", pods)
		}
	}
	if b.asked != 1 {
		t.Errorf("asked %d times, want once", b.asked)
	}
}
