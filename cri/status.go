package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Status is how a runtime sees itself, and where it keeps its things. The
// network's condition is false on nodes without CNI, which does not matter here.
type Status struct {
	Conditions []Condition
	// SandboxImage is the configured pause image; "" = not told (containerd 2
	// does not, and pins the image instead).
	SandboxImage string
	// Directories, absolute; "" = not told. CRI-O tells none.
	ContainerdRoot string // "/var/lib/containerd"
	RootDir        string // of containerd's CRI plugin
	StateDir       string
}

// Condition is one statement of a runtime about itself.
type Condition struct {
	Type            string // "RuntimeReady", "NetworkReady", …
	OK              bool
	Reason, Message string // why not
}

// Condition finds a condition by its type; false = the runtime has none such.
func (s Status) Condition(kind string) (Condition, bool) {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c, true
		}
	}
	return Condition{}, false
}

// Status asks the runtime for its status, verbose.
func (c *Client) Status(ctx context.Context) (Status, error) {
	resp, err := call(ctx, c.timeout, "ask status", c.runtime.Status, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return Status{}, err
	}
	cfg := decodeStatusConfig(resp.GetInfo()["config"])
	s := Status{
		SandboxImage:   cfg.SandboxImage,
		ContainerdRoot: absolute(cfg.ContainerdRootDir),
		RootDir:        absolute(cfg.RootDir),
		StateDir:       absolute(cfg.StateDir),
	}
	for _, m := range resp.GetStatus().GetConditions() {
		s.Conditions = append(s.Conditions, Condition{
			Type: m.GetType(), OK: m.GetStatus(), Reason: clean(m.GetReason()), Message: clean(m.GetMessage()),
		})
	}
	return s, nil
}

// CgroupDriver asks whether the runtime makes cgroups itself ("cgroupfs") or
// through systemd ("systemd"). containerd before 2.0 and CRI-O before 1.28 do not
// tell: ErrUnsupported. There a pod's cgroup parent shows it, by its ".slice".
func (c *Client) CgroupDriver(ctx context.Context) (string, error) {
	const op = "ask cgroup driver"
	resp, err := call(ctx, c.timeout, op, c.runtime.RuntimeConfig, &runtimeapi.RuntimeConfigRequest{})
	if err != nil {
		return "", err
	}
	if resp.GetLinux() == nil {
		return "", wrap(op, ErrUnsupported, "the runtime tells no Linux configuration")
	}
	switch d := resp.GetLinux().GetCgroupDriver(); d {
	case runtimeapi.CgroupDriver_SYSTEMD:
		return "systemd", nil
	case runtimeapi.CgroupDriver_CGROUPFS:
		return "cgroupfs", nil
	default:
		return "", wrap(op, ErrUnsupported, "unknown driver "+d.String())
	}
}
