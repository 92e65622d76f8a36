package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/test/lab"
)

// Touched describes every pod that does not run as it was created, other than those that were to be stopped.
func Touched(pods map[string]Pod, stopped func(name string) bool) (touched []string) {
	for name, p := range pods {
		if !stopped(name) && (!p.Runs() || p.Restarts() > 0 || p.Status.Reason != "") {
			touched = append(touched, fmt.Sprintf("%s: %+v", name, p.Status))
		}
	}
	return touched
}

// Problems describes every condition that a node without a problem does not have.
func (n NodeStatus) Problems() (problems []string) {
	for _, name := range []string{"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"} {
		want := "False"
		if name == "Ready" {
			want = "True"
		}
		if got := n.Condition(name); got.Status != want {
			problems = append(problems, fmt.Sprintf("condition %s is %q, want %s: %s", name, got.Status, want, got.Message))
		}
	}
	return problems
}

// LostImages returns the images of pods that the runtime does not have.
func LostImages(ctx context.Context, runtime *cri.Client, pods map[string]Pod) (lost []string, err error) {
	images, err := runtime.Images(ctx)
	if err != nil {
		return nil, err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(images, func(i cri.Image) bool { return slices.Contains(i.Tags, name) })
	}
	for _, p := range pods {
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			if !has(c.Image) {
				lost = append(lost, c.Image+" of "+p.Metadata.Name)
			}
		}
	}
	return lost, nil
}

// Orphans lists what a node has of pods that are not among these: sandboxes, logs, volumes and cgroups. The
// kubelet removes a deleted pod's once a minute.
func Orphans(ctx context.Context, l *lab.Lab, runtime *cri.Client, pods map[string]Pod) (orphans []string, err error) {
	sandboxes, err := runtime.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	var uids []string
	for _, p := range pods {
		uids = append(uids, p.uid(), strings.ReplaceAll(p.uid(), "-", "_")) // the latter in the names of slices
	}
	for _, s := range sandboxes {
		if !slices.Contains(uids, s.UID) {
			orphans = append(orphans, "sandbox of "+s.Name)
		}
	}
	patterns := []string{l.PodLogDir() + "/*", l.KubeletRoot() + "/pods/*"}
	for _, depth := range []string{"/", "/*/"} {
		cgroups := l.MemoryCgroupDir(l.PodsCgroup()) + depth
		patterns = append(patterns, cgroups+"pod*", cgroups+"kubepods*-pod*") // by the cgroupfs and the systemd driver
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range found {
			if !slices.ContainsFunc(uids, func(uid string) bool { return strings.Contains(filepath.Base(path), uid) }) {
				orphans = append(orphans, path)
			}
		}
	}
	return orphans, nil
}

// uid returns the UID that the node knows the pod by. A static pod's is not that of its mirror pod.
func (p Pod) uid() string {
	if own, ok := p.Metadata.Annotations["kubernetes.io/config.mirror"]; ok {
		return own
	}
	return p.Metadata.UID
}
