package inventory

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
)

// If the runtime reports only a container's process, the cgroup and oom_score_adj are read from that
// process, unless it does not belong to the container.
func TestLocator(t *testing.T) {
	proc := t.TempDir()
	for name, text := range map[string]string{
		"70/cgroup": "1:memory:/kubepods/besteffort/poduid/c0ffee\n", "70/oom_score_adj": "-997\n",
		"71/cgroup": "1:memory:/system.slice/cron.service\n", "71/oom_score_adj": "0\n",
		"73/cgroup": "1:memory:/kubepods/besteffort/poduid/c0ffee/init.scope\n", "73/oom_score_adj": "-997\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sys := t.TempDir()
	if err := os.MkdirAll(filepath.Join(sys, "memory"), 0o755); err != nil {
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
		"its systemd":          {cri.ContainerDetail{PID: 73}, cri.ContainerDetail{PID: 73, CgroupsPath: own, Resources: cri.Resources{OOMScoreAdj: cri.Number{Value: -997, Known: true}}}},
		"another's process":    {cri.ContainerDetail{PID: 71}, cri.ContainerDetail{PID: 71}},
		"one that has ended":   {cri.ContainerDetail{PID: 72}, cri.ContainerDetail{PID: 72}},
		"nothing":              {cri.ContainerDetail{}, cri.ContainerDetail{}},
	} {
		c.told.ID = "c0ffee"
		if got := locate(c.told); got.CgroupsPath != c.want.CgroupsPath || got.Resources.OOMScoreAdj != c.want.Resources.OOMScoreAdj {
			t.Errorf("%s: got %q, %+v; want %q, %+v", name, got.CgroupsPath, got.Resources, c.want.CgroupsPath, c.want.Resources)
		}
	}
}
