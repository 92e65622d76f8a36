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
