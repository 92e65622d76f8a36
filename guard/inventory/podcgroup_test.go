package inventory

import (
	"context"
	"slices"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/config"
)

// A pod's cgroup is recognized by its whole name: a short UID occurs in many names.
func TestPodCgroupByItsWholeName(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	const escaped = "11111111_2222_3333_4444_555555555555"
	cfg, facts := config.Default(), &nodeFacts{resolve: cgroup.Layout{}.Resolve, memoryMin: noAmount, memoryLimit: noAmount, children: noChildren}
	for _, c := range []struct {
		uid, path string
		own       bool
	}{
		{"8", "/k8s.io/c1", false},
		{"k8s", "/k8s.io/c1", false},
		{"8", "/kubepods/pod8/c1", true},
		{"8", "/kubepods/pod18/c1", false},
		{"8", "/kubepods/pod81/c1", false},
		{"8", "/kubepods/8/c1", false},
		{"8", "/kubepods/pod8.slice/c1", false},
		{"8", "kubepods-pod8.slice:cri-containerd:c1", true},
		{"8", "kubepods-besteffort-pod8.slice:crio:c1", true},
		{"8", "kubepods-besteffort-pod18.slice:crio:c1", false},
		{"besteffort", "kubepods-besteffort.slice:crio:c1", false},
		{"pods", "/kubepods/c1", false},
		{"s", "kubepods.slice:crio:c1", false},
		{uid, "/kubepods/burstable/pod" + uid + "/c1", true},
		{uid, "/kubepods/burstable/pod" + escaped + "/c1", false},
		{uid, "kubepods-burstable-pod" + escaped + ".slice:crio:c1", true},
		{"", "/kubepods/pod/c1", false},
	} {
		ctrs := []cri.ContainerDetail{{CgroupsPath: c.path, Container: cri.Container{ID: "c1", State: cri.Running}}}
		p := derivePod(&cfg, listed{Sandbox: cri.Sandbox{ID: "s", UID: c.uid, Ready: true}, containers: ctrs, classified: ctrs}, facts)
		if (p.Cgroup != "") != c.own {
			t.Errorf("UID %q in %s: pod cgroup %q", c.uid, c.path, p.Cgroup)
		}
		if p.Containers[0].Cgroup == "" {
			t.Errorf("UID %q in %s: the container's cgroup is not known", c.uid, c.path)
		}
	}
}

// A container whose details the runtime does not give is found by its name beside its monitor, which is listed first and
// belongs to the pod, too.
func TestFindUnreportedBesideItsMonitor(t *testing.T) {
	p := Pod{Cgroup: "/kubepods/podu", Containers: []Container{{ID: "e5"}}}
	p.findUnreported(func(string) ([]string, error) { return []string{"crio-conmon-e5.scope"}, nil })
	if got := p.Containers[0].Cgroup; got != "" {
		t.Errorf("the monitor alone is there: %q", got)
	}
	p.findUnreported(func(string) ([]string, error) { return []string{"crio-conmon-e5.scope", "crio-e5.scope"}, nil })
	if got := p.Containers[0].Cgroup; got != "/kubepods/podu/crio-e5.scope" {
		t.Errorf("found %q", got)
	}
	for _, name := range []string{"crio-conmon-e5.scope", "crio-e5.scope", "e5", "kata_e5"} {
		if !p.OwnsCgroupNamed(name) {
			t.Errorf("%s counts as another's", name)
		}
	}
}

// A cgroup that two sandboxes share is charged to neither; their containers' own cgroups are.
func TestPodCgroupOfTwoSandboxes(t *testing.T) {
	container := func(id, sandbox string) cri.Container {
		return cri.Container{ID: id, SandboxID: sandbox, State: cri.Running}
	}
	src := placedSource{
		sandboxes: []cri.Sandbox{
			{ID: "s1", UID: "u", Ready: true}, {ID: "s2", UID: "u", Attempt: 1, Ready: true}, {ID: "s3", UID: "v", Ready: true},
			{ID: "s4", UID: "s", Ready: true}, {ID: "s5", UID: "w", Ready: true},
		},
		containers: []cri.Container{container("c1", "s1"), container("c2", "s2"), container("c3", "s3"), container("c4", "s4"), container("c5", "s5")},
		paths: map[string]string{
			"c1": "/kubepods/podu/c1", "c2": "/kubepods/podu/c2", "c3": "/kubepods/podv/c3",
			"c4": "/pods/c4", "c5": "/pods/shared", // the name matches this UID's cgroup, but it holds another pod's containers
		},
	}
	l := newTestLister(t, critest.New(t, critest.Containerd2), cgroup.Layout{})
	l.opt.Source = func(context.Context) (Source, error) { return src, nil }
	check := func(pods []Pod) {
		t.Helper()
		want := map[string][2]string{
			"s1": {"", "/kubepods/podu/c1"}, "s2": {"", "/kubepods/podu/c2"}, "s3": {"/kubepods/podv", "/kubepods/podv/c3"},
			"s4": {"", "/pods/c4"}, "s5": {"", ""},
		}
		for i := range pods {
			p := &pods[i]
			if got := [2]string{p.Cgroup, p.Containers[0].Cgroup}; got != want[p.ID] {
				t.Errorf("sandbox %s: pod and container cgroup %q, want %q", p.ID, got, want[p.ID])
			}
		}
		if len(pods) != len(want) {
			t.Errorf("%d pods listed, want %d", len(pods), len(want))
		}
	}
	check(l.List(t.Context()).Pods)
	l.SetConfig(l.cfg)
	check(l.Current().Pods)
}

// placedSource is a runtime whose containers are in the given cgroups.
type placedSource struct {
	sandboxes  []cri.Sandbox
	containers []cri.Container
	paths      map[string]string
}

func (s placedSource) Sandboxes(context.Context) ([]cri.Sandbox, error) {
	return slices.Clone(s.sandboxes), nil
}

func (s placedSource) Containers(context.Context) ([]cri.Container, error) {
	return slices.Clone(s.containers), nil
}

func (s placedSource) ContainerDetail(_ context.Context, id string) (cri.ContainerDetail, error) {
	return cri.ContainerDetail{CgroupsPath: s.paths[id]}, nil
}
