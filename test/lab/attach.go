package lab

import (
	"context"
	"errors"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// NodeOptions say how a node that somebody else runs is laid out.
type NodeOptions struct {
	Endpoint    string // "unix:///run/containerd/containerd.sock"
	KubeletRoot string // such as /var/lib/kubelet
	PodLogDir   string // such as /var/log/pods
	Systemd     bool   // the runtime's cgroup driver is systemd's; else cgroupfs
}

// Attach makes a lab of the machine's own containerd, on a machine that is there for nothing else: pods run as on a node with a
// kubelet, below the cgroup /kubepods or /kubepods.slice. What starts, stops or pauses containerd, imports images or lists leftovers is not
// to be used on it: the machine's own means do that. Close ends the connection and leaves the pods alone.
func Attach(ctx context.Context, options NodeOptions) (*Lab, error) {
	l := &Lab{
		endpoint: options.Endpoint, kubelet: options.KubeletRoot, podLogs: options.PodLogDir,
		cgroup: "/", pods: "/" + podsCgroup, systemd: options.Systemd,
	}
	var err error
	if l.cgroups, err = findCgroups("/"); err != nil {
		return nil, fmt.Errorf("attach lab: %w", err)
	}
	if options.Systemd {
		l.pods += ".slice"
	} else if err := l.cgroups.make(podsCgroup); err != nil {
		return nil, fmt.Errorf("attach lab: %w", err)
	}
	if err := l.dial(); err != nil {
		return nil, fmt.Errorf("attach lab: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	answer, err := l.runtime.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach lab: %w", err), l.Close())
	}
	l.version = answer.GetRuntimeVersion()
	return l, nil
}
