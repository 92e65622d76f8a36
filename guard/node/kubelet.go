package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/lastgood"
)

// kubeletRoots are the directories where kubelets keep their pods, the most common one first.
var kubeletRoots = []string{
	"/var/lib/kubelet", "/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet",
}

// KubeletRoots returns the directories where a kubelet may keep its pods: the configured one ("" = none is), or the known ones.
func KubeletRoots(configured string) []string {
	if configured != "" {
		return []string{configured}
	}
	return slices.Clone(kubeletRoots)
}

// FindKubeletRoot returns the directory of those where this node's kubelet probably keeps its pods. If its disk does not answer in
// time, it returns the first one: a service that waited for the disk would not guard memory either.
func FindKubeletRoot(roots []string) string {
	if len(roots) == 1 {
		return roots[0]
	}
	return lastgood.Within(kubeletWait, func() string { return findKubeletRoot(roots) }, roots[0])
}

// findKubeletRoot returns the first directory with a kubelet's state, or else the first that exists: a CSI driver that expects
// the kubelet in another directory creates that one.
func findKubeletRoot(roots []string) string {
	exists := func(path string) bool { _, err := os.Stat(path); return err == nil }
	i := slices.IndexFunc(roots, func(dir string) bool {
		return slices.ContainsFunc(kubeletFiles, func(name string) bool { return exists(filepath.Join(dir, name)) })
	})
	if i < 0 {
		i = max(slices.IndexFunc(roots, exists), 0)
	}
	return roots[i]
}

// kubeletProcesses are the names of processes that are a kubelet or contain one.
var kubeletProcesses = []string{
	"kubelet", "kubelite", "hyperkube", "k3s", "k3s-server", "k3s-agent", "rke2", "k0s", "microk8s",
	"edgecore", "microshift",
}

// kubeletFiles are checkpoints that a kubelet writes when it starts.
var kubeletFiles = []string{"cpu_manager_state", "memory_manager_state", inventory.KubeletStateFile}

// KubeletSign returns why a kubelet may manage this node's pods, even one that is restarting; "" = there is
// no sign of a kubelet. When in doubt, it assumes that there is one.
func (n *Node) KubeletSign(ctx context.Context, sandboxes []cri.Sandbox) string {
	if cgroup.Namespaced(n.opt.Proc) {
		return "the node's processes cannot be seen"
	}
	for i := range sandboxes {
		if inventory.IsKubeletPod(sandboxes[i].Annotations) {
			return "pod " + sandboxes[i].Namespace + "/" + sandboxes[i].Name + " is a kubelet's"
		}
	}
	ctx, cancel := context.WithTimeout(ctx, kubeletWait)
	defer cancel()
	began := time.Now()
	t := n.kubelets.Get(ctx, func() kubeletLook { return kubeletLook{began, n.kubeletTrace()} })
	if !t.began.Equal(began) { // from an earlier look, or from none
		return "processes or a kubelet's directory cannot be read in time"
	}
	return t.sign
}

// kubeletWait limits how long a search for a kubelet may take. The command line of a process that waits for a
// dead mount may be unreadable until the mount answers.
const kubeletWait = 2 * time.Second

// kubeletLook is the result of a search for a kubelet's processes and files.
type kubeletLook struct {
	began time.Time
	sign  string // "" = no kubelet
}

// kubeletTrace returns which process or file belongs to a kubelet, "" if there is none. It may hang.
func (n *Node) kubeletTrace() string {
	name, err := cgroup.ProcessNamed(n.opt.Proc, kubeletProcesses...)
	switch {
	case err != nil:
		return err.Error()
	case name != "":
		return "a process is called " + name
	}
	for _, dir := range append(slices.Clone(kubeletRoots), n.opt.KubeletRoot) {
		for _, name := range kubeletFiles {
			if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
				return "a kubelet keeps its state here, or its directory cannot be read"
			}
		}
	}
	return ""
}
