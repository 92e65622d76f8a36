package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/criguard/criguard/cri"
)

// A runtime that tells of a container its process alone leaves its cgroup and its class to be found
// by that, unless the process is none of the container's.
func TestNodeLocatesContainers(t *testing.T) {
	proc := effectProc(t, 1<<30)
	for name, text := range map[string]string{
		"70/cgroup": "1:memory:/kubepods/besteffort/poduid/c0ffee\n", "70/oom_score_adj": "-997\n",
		"71/cgroup": "1:memory:/system.slice/cron.service\n", "71/oom_score_adj": "0\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := openEffectNode(t, goodConfig(t, fmt.Sprintf("[node]\nproc = %q\nsys = %q\n", proc, effectSysV1(t))))
	const own = "/kubepods/besteffort/poduid/c0ffee"
	told := cri.Number{Value: 5, Known: true}
	for name, c := range map[string]struct {
		told, want cri.ContainerDetail
	}{
		"its process":          {cri.ContainerDetail{PID: 70}, cri.ContainerDetail{PID: 70, CgroupsPath: own, Resources: cri.Resources{OOMScoreAdj: cri.Number{Value: -997, Known: true}}}},
		"its process and more": {cri.ContainerDetail{PID: 70, Resources: cri.Resources{OOMScoreAdj: told}}, cri.ContainerDetail{PID: 70, CgroupsPath: own, Resources: cri.Resources{OOMScoreAdj: told}}},
		"its cgroup":           {cri.ContainerDetail{PID: 70, CgroupsPath: "/told"}, cri.ContainerDetail{PID: 70, CgroupsPath: "/told"}},
		"another's process":    {cri.ContainerDetail{PID: 71}, cri.ContainerDetail{PID: 71}},
		"one that has ended":   {cri.ContainerDetail{PID: 72}, cri.ContainerDetail{PID: 72}},
		"nothing":              {cri.ContainerDetail{}, cri.ContainerDetail{}},
	} {
		c.told.ID = "c0ffee"
		if got := n.located(c.told); got.CgroupsPath != c.want.CgroupsPath || got.Resources.OOMScoreAdj != c.want.Resources.OOMScoreAdj {
			t.Errorf("%s: got %q, %+v; want %q, %+v", name, got.CgroupsPath, got.Resources, c.want.CgroupsPath, c.want.Resources)
		}
	}
}
