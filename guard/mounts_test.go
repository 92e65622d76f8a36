package guard

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/mounts"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/need"
)

// The status, with and without a service, shows what is missing now.
func TestLookAtMounts(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	pod := srv.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	srv.AddPod(critest.PodSpec{Bare: true, Containers: []critest.ContainerSpec{{}}})
	h := connectedNode(t, srv)
	root := h.config().Node.RootDir
	l := &Look{host: h, guard: eviction.New(h.config(), h.kernel, h, nil, nil, nil, policy.NewRestraint(h.bootID))}
	warned := func(text string) bool {
		return slices.ContainsFunc(l.Status().Warnings, func(w string) bool { return strings.Contains(w, text) })
	}
	expect := func(when string, want bool) {
		t.Helper()
		l.Refresh(t.Context())
		for _, text := range []string{"the pods' cgroups are not in " + h.layout.Root(), root + "/pods", h.podLogs} {
			if warned(text) != want {
				t.Errorf("%s: %q in %q", when, text, l.Status().Warnings)
			}
		}
	}
	expect("nothing mounted", true)
	if warned("socket exists") || warned("read-only") {
		t.Errorf("%q", l.Status().Warnings)
	}
	nodetest.Write(t, "/", map[string]string{
		filepath.Join(root, "pods", pod.UID, "etc-hosts"):                                                      "",
		filepath.Join(h.podLogs, pod.Namespace+"_"+pod.Name+"_"+pod.UID, "0.log"):                              "",
		filepath.Join(h.layout.Dir("memory", h.lister.Current().Pods[0].Containers[0].Cgroup), "cgroup.procs"): "",
	})
	expect("everything mounted", false)
}

// A kubelet that comes after criguard may keep its pods in another directory than the one that was expected.
func TestLookFindsTheKubelet(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	pod := srv.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	h := connectedNode(t, srv)
	guess, root := h.kubeletRoot(), t.TempDir()
	h.mounts = mounts.New(mounts.Options{Layout: h.layout, Proc: h.proc, KubeletRoots: []string{guess, root}, PodLogs: h.podLogs})
	look := func(want string) {
		t.Helper()
		l := h.lister.List(t.Context())
		if missing := h.lookAtMounts(t.Context()); h.kubeletRoot() != want || slices.ContainsFunc(missing, func(m string) bool { return strings.Contains(m, "no pod has a directory in "+want) }) != (want == guess) {
			t.Errorf("the directory is %s, want %s; missing: %q", h.kubeletRoot(), want, missing)
		}
		h.meter.Measure(t.Context(), l.Pods)
	}
	look(guess)
	nodetest.Write(t, root, map[string]string{
		filepath.Join("pods", pod.UID, "volumes/kubernetes.io~empty-dir/data/file"): strings.Repeat("x", 1<<20),
		inventory.KubeletStateFile: `{"data":"{\"entries\":{\"` + pod.UID + `\":{\"ContainerResources\":{\"a\":{\"requests\":{\"memory\":\"7\"}}}}}}"}`,
	})
	for range 2 {
		look(root)
	}
	if u, _ := h.meter.Usage(pod.ID); u.Bytes.Volumes.Value < 1<<20 {
		t.Errorf("its volumes are %+v", u.Bytes.Volumes)
	}
	if p := h.lister.Current().Pods[0]; p.RequestSource != "kubelet state" {
		t.Errorf("its request is from %q", p.RequestSource)
	}
}

// A pod whose cgroups and directories are gone counts only if it is still listed a second later: it may have ended since the listing.
func TestLookAtEndedPods(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	srv.AddPod(critest.PodSpec{Containers: []critest.ContainerSpec{{}}})
	h := connectedNode(t, srv)
	inv := h.lister.List(t.Context())
	pods := inv.Pods
	for i, step := range []struct {
		after   time.Duration // the listing
		pods    []inventory.Pod
		missing int
	}{
		{0, nil, 0},
		{time.Second, pods, 0},
		{2*time.Second - 1, pods, 0},
		{2 * time.Second, pods, 3},
		{2 * time.Second, pods, 3},
		{3 * time.Second, nil, 0}, // drained
		{4 * time.Second, pods, 0},
	} {
		inv.At, inv.Pods = step.after, step.pods
		if got, _ := h.mounts.Look(t.Context(), inv, h.kubeletRoot(), "", ""); len(got) != step.missing {
			t.Errorf("%d: %q, want %d", i, got, step.missing)
		}
	}
}

// Before any runtime has answered, the directories of the sockets are named.
func TestLookForRuntime(t *testing.T) {
	for endpoint, want := range map[string]bool{"/none/runtime.sock": true, t.TempDir() + "/runtime.sock": false} {
		h := openEffectNode(t, configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '"+endpoint+"'")))
		got := strings.Join(h.lookAtMounts(t.Context()), "\n")
		if strings.Contains(got, "socket exists: "+filepath.Dir(endpoint)) != want {
			t.Errorf("%s: %q", endpoint, got)
		}
	}
}

// With read-only cgroups criguard observes, but does not start to enforce.
func TestReadOnlyCgroups(t *testing.T) {
	need.Root(t)
	base := nodetest.Config(t, "runtime.endpoint = '/none'\n")
	sys := configtest.Parse(t, base).Node.Sys
	for _, flags := range []uintptr{unix.MS_BIND, unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY} {
		if err := unix.Mount(sys, sys, "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(sys, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for mode, want := range map[string]error{"enforce": mounts.ErrReadOnlyCgroups, "observe": nil} {
		cfg := configtest.Parse(t, base+"mode = '"+mode+"'\n")
		h := openEffectNode(t, cfg)
		if err := h.checkCgroups(cfg.Mode); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", mode, err, want)
		}
		if got := strings.Join(h.lookAtMounts(t.Context()), "\n"); !strings.Contains(got, "is read-only") {
			t.Errorf("warnings %q", got)
		}
	}
	// A reload does not put in force what the next start would refuse.
	observe, enforce := configtest.Parse(t, base+"mode = 'observe'\n"), configtest.Parse(t, base)
	s := effectService(t, observe)
	if _, err := s.reload(enforce, nil, nil, true); !errors.Is(err, api.ErrRefused) || !errors.Is(err, mounts.ErrReadOnlyCgroups) || s.guard.Config().Mode != config.ModeObserve {
		t.Errorf("reloaded in mode %s: %v", s.guard.Config().Mode, err)
	}
	if _, err := s.reload(observe, nil, nil, true); err != nil {
		t.Error(err)
	}
}
