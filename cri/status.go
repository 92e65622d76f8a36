package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Status is a runtime's report about itself.
type Status struct {
	// SandboxImage is the configured pause image; "" = not reported (containerd 2 does not report it,
	// and pins the image instead).
	SandboxImage string
}

// Status requests the runtime's verbose status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	resp, err := call(ctx, c.timeout, "ask status", c.runtime.Status, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return Status{}, err
	}
	return Status{SandboxImage: decode[statusConfig](resp.GetInfo()["config"]).SandboxImage}, nil
}
