package gc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// litter is a Manager on real cgroups, with the cgroups of pods that come and go.
type litter struct {
	*keeping
	*nodetest.Tree
	t    *testing.T
	node *node.Node
}

func newLitter(t *testing.T, lines ...string) *litter {
	t.Helper()
	l := &litter{keeping: newKeeping(t, lines...), Tree: nodetest.NewTree(t), t: t}
	var err error
	l.node, err = node.Open(node.Options{
		Layout: l.Layout, Proc: cgroup.Proc(l.opt.Config.Node.Proc), PodsCgroup: l.Root, KubeletRoot: l.opt.Config.Node.RootDir, Now: cgroup.BootTime, Disks: l.opt.Disks, Meter: l.opt.Meter, NewWaker: node.NewWaker,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.node.Close)
	if err := l.node.Watch(); err != nil {
		t.Fatal(err)
	}
	l.opt.Node = l.node
	// The existing pods belong to a kubelet.
	client, _ := l.opt.Client()
	sandboxes, err := client.Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range sandboxes {
		if err := client.RemoveSandbox(t.Context(), sandboxes[i].ID); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// exists reports whether a cgroup exists in the hierarchy of a controller.
func (l *litter) exists(controller, rel string) bool {
	_, err := os.Stat(l.Layout.Dir(controller, rel))
	return err == nil
}

// collected returns the cgroups that were recorded as removed.
func (l *litter) collected() (ids []string, dry bool) {
	for _, v := range l.recorded {
		for i := range v.Reports {
			if r := &v.Reports[i]; r.Step == reclaim.StepCgroups && v.Signal == policy.MemoryAvailable {
				dry = r.DryRun
				for _, it := range r.Removed {
					ids = append(ids, strings.TrimPrefix(it.ID, l.Root))
				}
			}
		}
	}
	return ids, dry
}

const noAge = "containers.min_age = '0s'"

// Empty cgroups of removed pods are removed in every hierarchy, with everything below them. No other cgroup
// is.
func TestEmptyPodCgroupsAreRemoved(t *testing.T) {
	l := newLitter(t, noAge)
	ready := l.server.AddPod(critest.PodSpec{Bare: true})
	old, busy, listed := l.Root+"/besteffort/podold", l.Root+"/podbusy", l.Root+"/pod"+ready.UID
	slice, other := l.Root+"/kubepods-pod7.slice", l.Root+"/other"
	l.Mkdir(old+"/left/below", busy+"/c", listed, slice, other)
	// In another hierarchy the cgroup may have more children.
	second := l.Layout.Dir("pids", old+"/elsewhere")
	if err := os.MkdirAll(second, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for dir := second; filepath.Base(dir) != "fs" && strings.Contains(dir, "criguard-test"); dir = filepath.Dir(dir) {
			_ = os.Remove(dir)
		}
	})
	l.Process(busy + "/c")
	l.node.Sweep(nil)
	l.CollectContainers(t.Context())
	if got, dry := l.collected(); len(got) != 1 || got[0] != "/besteffort/podold" || dry {
		t.Errorf("removed %q, dry run %t", got, dry)
	}
	for _, controller := range []string{"memory", "pids"} {
		if l.exists(controller, old) {
			t.Errorf("still there in the hierarchy of %s", controller)
		}
	}
	for _, rel := range []string{busy + "/c", listed, slice, other, l.Root + "/besteffort"} {
		if !l.exists("memory", rel) {
			t.Errorf("%s was removed", rel)
		}
	}
	if text := l.log.String(); strings.Contains(text, "cgroup") {
		t.Errorf("logged %s", text)
	}
}

// Nothing is removed if it is young, if garbage collection is off or paused, in observe mode, or next to a
// kubelet.
func TestEmptyPodCgroupsStay(t *testing.T) {
	for name, c := range map[string]struct {
		lines string
		setup func(*litter)
	}{
		"younger than min_age": {"containers.min_age = '1m'", func(*litter) {}},
		"gc is off":            {noAge + "\ncontainers.gc = false", func(*litter) {}},
		"paused":               {noAge, func(l *litter) { l.SetPaused(true) }},
		"observing": {noAge + "\nmode = 'observe'", func(l *litter) {
			l.t.Cleanup(func() {
				if got, dry := l.collected(); len(got) != 1 || !dry {
					l.t.Errorf("said that it would remove %q, dry run %t", got, dry)
				}
			})
		}},
		"a kubelet's pod": {noAge, func(l *litter) { l.server.AddPod(critest.PodSpec{}) }},
		"a kubelet's process": {noAge, func(l *litter) {
			nodetest.Write(l.t, l.opt.Config.Node.Proc, map[string]string{"4711/comm": "kubelet\n"})
		}},
		"a kubelet's state": {noAge, func(l *litter) {
			nodetest.Write(l.t, l.opt.Config.Node.RootDir, map[string]string{"cpu_manager_state": ""})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLitter(t, c.lines)
			pod := l.Root + "/podold"
			l.Mkdir(pod)
			l.node.Sweep(nil)
			c.setup(l)
			l.CollectContainers(t.Context())
			if !l.exists("memory", pod) {
				t.Error("removed")
			}
			if got, dry := l.collected(); len(got) > 0 && !dry {
				t.Errorf("recorded %q", got)
			}
		})
	}
}
