package lab

import (
	"context"
	"errors"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// NodeOptions describe the layout of a node that the lab does not run itself.
type NodeOptions struct {
	Endpoint    string // "unix:///run/containerd/containerd.sock"
	KubeletRoot string // such as /var/lib/kubelet
	PodLogDir   string // such as /var/log/pods
	Systemd     bool   // the runtime uses the systemd cgroup driver, otherwise cgroupfs
}

// Attach makes a lab of the machine's own containerd, on a machine that has no other purpose. Pods
// run as on a node with a kubelet, below the cgroup /kubepods or /kubepods.slice. Do not use the
// methods that start, stop or pause containerd, import images or list leftovers; use the machine's
// own tools. Close closes the connection and leaves the pods running.
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
	// containerd tells systemd that it is ready before its CRI is.
	var answer *cri.VersionResponse
	err = poll(ctx, func() (bool, error) {
		if answer, err = l.runtime.Version(ctx, &cri.VersionRequest{}); err != nil {
			return false, err
		}
		return l.serves(ctx)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach lab: %w", err), l.Close())
	}
	l.version = answer.GetRuntimeVersion()
	return l, nil
}
