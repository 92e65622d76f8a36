package node

import (
	"context"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/lastgood"
)

const crictlConfig = "/etc/crictl.yaml"

// crictl is crictl's configuration.
type crictl struct {
	path string
	wait time.Duration // for the file, whose disk may stall
	last lastgood.Value[string]
}

// CrictlEndpoint returns a function that returns the endpoint of the runtime that crictl uses; "" if its configuration cannot be
// read. If its disk stalls, that is the last endpoint that was read.
func CrictlEndpoint() func(context.Context) string {
	return (&crictl{path: crictlConfig, wait: lastgood.FileTimeout}).endpoint
}

func (c *crictl) endpoint(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	return c.last.Get(ctx, func() string {
		endpoint, _ := cri.CrictlEndpoint(c.path)
		return endpoint
	})
}
