package inventory

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/policy"
)

// If the runtime reports only a container's process, the cgroup and oom_score_adj are read from that
// process, unless it does not belong to the container.
func TestLocator(t *testing.T) {
	const systemd = "kubepods-poduid.slice:cri-containerd:c0ffee"
	const mismatch = "/system.slice/containerd.service/" + systemd
	proc := t.TempDir()
	for name, text := range map[string]string{
		"70/cgroup": "1:memory:/kubepods/besteffort/poduid/c0ffee\n", "70/oom_score_adj": "-997\n",
		"71/cgroup": "1:memory:/system.slice/cron.service\n", "71/oom_score_adj": "0\n",
		"73/cgroup": "1:memory:/kubepods/besteffort/poduid/c0ffee/init.scope\n", "73/oom_score_adj": "-997\n",
		"75/cgroup": "1:memory:" + mismatch + "\n", "75/oom_score_adj": "-997\n",
		"76/cgroup": "1:memory:/k8s.io/kata_5a\n", "77/cgroup": "1:memory:/k8s.io/kata_5b\n", "78/cgroup": "1:memory:/k8s.io/c0ffee/5a\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sys := t.TempDir()
	if err := os.MkdirAll(filepath.Join(sys, "memory", mismatch), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(sys, "memory/k8s.io/kata_5a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sys, "memory/cgroup.procs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	layout, err := cgroup.Detect(cgroup.Root(sys), cgroup.Proc(proc))
	if err != nil {
		t.Fatal(err)
	}
	locate := locator(layout)
	const own = "/kubepods/besteffort/poduid/c0ffee"
	told := cri.Number{Value: 5, Known: true}
	for name, c := range map[string]struct {
		told, want cri.ContainerDetail
	}{
		"its process":          {cri.ContainerDetail{PID: 70}, cri.ContainerDetail{PID: 70, CgroupsPath: own, Resources: cri.Resources{OOMScoreAdj: cri.Number{Value: -997, Known: true}}}},
		"its process and more": {cri.ContainerDetail{PID: 70, Resources: cri.Resources{OOMScoreAdj: told}}, cri.ContainerDetail{PID: 70, CgroupsPath: own, Resources: cri.Resources{OOMScoreAdj: told}}},
		"its cgroup":           {cri.ContainerDetail{PID: 70, CgroupsPath: "/told"}, cri.ContainerDetail{PID: 70, CgroupsPath: "/told"}},
		"a relative cgroup":    {cri.ContainerDetail{PID: 70, CgroupsPath: "podx/c0ffee"}, cri.ContainerDetail{PID: 70, CgroupsPath: own, Resources: cri.Resources{OOMScoreAdj: cri.Number{Value: -997, Known: true}}}},
		"no more than that":    {cri.ContainerDetail{CgroupsPath: "podx/c0ffee"}, cri.ContainerDetail{}},
		"another driver's":     {cri.ContainerDetail{PID: 75, CgroupsPath: systemd}, cri.ContainerDetail{PID: 75, CgroupsPath: mismatch, Resources: cri.Resources{OOMScoreAdj: cri.Number{Value: -997, Known: true}}}},
		"another container's":  {cri.ContainerDetail{PID: 71, CgroupsPath: systemd}, cri.ContainerDetail{PID: 71, CgroupsPath: systemd}},
		"its virtual machine":  {cri.ContainerDetail{PID: 76, CgroupsPath: "/k8s.io/c0ffee"}, cri.ContainerDetail{CgroupsPath: "/k8s.io/c0ffee", SandboxCgroup: "/k8s.io/kata_5a"}},
		"another's machine":    {cri.ContainerDetail{PID: 77, CgroupsPath: "/k8s.io/c0ffee"}, cri.ContainerDetail{CgroupsPath: "/k8s.io/c0ffee"}},
		"a name like that":     {cri.ContainerDetail{PID: 78, CgroupsPath: "/k8s.io/c0ffee"}, cri.ContainerDetail{CgroupsPath: "/k8s.io/c0ffee"}},
		"its systemd":          {cri.ContainerDetail{PID: 73}, cri.ContainerDetail{PID: 73, CgroupsPath: own, Resources: cri.Resources{OOMScoreAdj: cri.Number{Value: -997, Known: true}}}},
		"another's process":    {cri.ContainerDetail{PID: 71}, cri.ContainerDetail{PID: 71}},
		"one that has ended":   {cri.ContainerDetail{PID: 72}, cri.ContainerDetail{PID: 72}},
		"nothing":              {cri.ContainerDetail{}, cri.ContainerDetail{}},
	} {
		c.told.ID, c.told.SandboxID = "c0ffee", "5a"
		got := locate(c.told)
		if got.SandboxCgroup != c.want.SandboxCgroup {
			t.Errorf("%s: the sandbox is in %q, want %q", name, got.SandboxCgroup, c.want.SandboxCgroup)
		}
		if got.CgroupsPath != c.want.CgroupsPath || got.Resources.OOMScoreAdj != c.want.Resources.OOMScoreAdj {
			t.Errorf("%s: got %q, %+v; want %q, %+v", name, got.CgroupsPath, got.Resources, c.want.CgroupsPath, c.want.Resources)
		}
	}
}

// A kubelet with the systemd driver names a slice. If the runtime does not use systemd, the container is in a cgroup of
// that name below or beside the runtime's own. It is found once the container runs, with its pod's class.
func TestListerWithAnotherDriver(t *testing.T) {
	const spec = "kubepods-burstable-podu.slice:cri-containerd:c0ffee"
	const own = "/system.slice/containerd.service/" + spec
	files := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	proc := files(map[string]string{"70/cgroup": "0::" + own + "\n", "70/oom_score_adj": "-997\n"})
	sys := files(map[string]string{"cgroup.controllers": "memory\n", own + "/cgroup.procs": "70\n"})
	layout, err := cgroup.Detect(cgroup.Root(sys), cgroup.Proc(proc))
	if err != nil {
		t.Fatal(err)
	}
	src := startedSource{placedSource{
		sandboxes:  []cri.Sandbox{{ID: "s1", UID: "u", Ready: true}},
		containers: []cri.Container{{ID: "c0ffee", SandboxID: "s1", State: cri.Created}},
		paths:      map[string]string{"c0ffee": spec},
	}}
	l := newTestLister(t, critest.New(t, critest.Containerd2), layout)
	l.opt.Source = func(context.Context) (Source, error) { return src, nil }
	l.List(t.Context())
	src.containers[0].State = cri.Running
	p := l.List(t.Context()).Pods[0]
	if p.Containers[0].Cgroup != own || p.Cgroup != "" {
		t.Errorf("the container is in %q, the pod in %q", p.Containers[0].Cgroup, p.Cgroup)
	}
	if p.QoS != policy.Burstable || p.Protection != "critical priority" {
		t.Errorf("class %s, protection %q", p.QoS, p.Protection)
	}
}

// startedSource reports the process of a container that runs.
type startedSource struct{ placedSource }

func (s startedSource) ContainerDetail(ctx context.Context, id string) (cri.ContainerDetail, error) {
	d, err := s.placedSource.ContainerDetail(ctx, id)
	if d.ID = id; s.containers[0].State == cri.Running {
		d.PID = 70
	}
	return d, err
}
