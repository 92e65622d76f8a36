package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/lastgood/lastgoodtest"
	"github.com/criguard/criguard/guard/node/nodetest"
)

// The directory of a kubelet is the one with its state: a CSI driver creates the most common one on a node of k0s. Without any
// state, as before a kubelet's first start, it is the first that exists, or else the most common one.
func TestFindKubeletRoot(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"none":                {nil, "common"},
		"one exists":          {[]string{"k0s/pods/x"}, "k0s"},
		"two exist":           {[]string{"common/plugins/x", "k0s/pods/x"}, "common"},
		"a driver's, too":     {[]string{"common/plugins/x", "common/pods/x", "k0s/cpu_manager_state"}, "k0s"},
		"an old one, too":     {[]string{"common/memory_manager_state", "k0s/cpu_manager_state"}, "common"},
		"the state of a pod":  {[]string{"common/pods/x", "k0s/pods/x", "snap/allocated_pods_state"}, "snap"},
		"a file in its place": {[]string{"common", "k0s/cpu_manager_state"}, "k0s"},
	} {
		files := map[string]string{}
		for _, f := range c.files {
			files[f] = ""
		}
		dir := nodetest.Files(t, files)
		roots := []string{filepath.Join(dir, "common"), filepath.Join(dir, "k0s"), filepath.Join(dir, "snap")}
		if got := findKubeletRoot(roots); got != filepath.Join(dir, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestKubeletSign(t *testing.T) {
	k := &Node{opt: Options{Proc: cgroup.Proc(nodetest.Proc(t, 4<<30)), KubeletRoot: t.TempDir()}}
	if got := k.KubeletSign(t.Context(), []cri.Sandbox{{}}); got != "" {
		t.Errorf("without one: %q", got)
	}
	for name, lines := range map[string][2]string{
		"1": {"k3s-server", ""}, "2": {"exe", "/usr/bin/kubelet\x00--config"}, "3": {"kubelite", "x"},
		"4": {"edgecore", "/usr/local/bin/edgecore"},
	} {
		dir := filepath.Join(string(k.opt.Proc), name)
		nodetest.Write(t, dir, map[string]string{"comm": lines[0] + "\n", "cmdline": lines[1]})
		if got := k.KubeletSign(t.Context(), nil); got == "" {
			t.Errorf("%q is not taken for a kubelet", lines)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("hangs", func(t *testing.T) {
		dir := filepath.Join(string(k.opt.Proc), "4")
		cmdline := filepath.Join(dir, "cmdline")
		nodetest.Write(t, dir, map[string]string{"comm": "stuck\n", "cmdline": ""})
		lastgoodtest.Stall(t, cmdline)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		answer := make(chan string, 1)
		go func() { answer <- k.KubeletSign(ctx, nil) }()
		select {
		case got := <-answer:
			if got == "" {
				t.Error("processes that cannot be read in time are taken for no kubelet")
			}
		case <-time.After(time.Minute):
			t.Error("waits for a process that hangs")
		}
		f, err := os.OpenFile(cmdline, os.O_RDWR, 0) // ends the wait
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.RemoveAll(dir), f.Close()); err != nil {
			t.Fatal(err)
		}
		nodetest.Await(t, "no sign of a kubelet", func() bool { return k.KubeletSign(t.Context(), nil) == "" })
	})
	k.opt.Proc = "/nowhere"
	if k.KubeletSign(t.Context(), nil) == "" {
		t.Error("processes that cannot be seen are taken for no kubelet")
	}
}
