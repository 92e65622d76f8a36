package critest

import (
	"context"
	"path"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
)

// ContainerStats of one id works even if other shims hang.
func (v *runtimeService) ContainerStats(_ context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	c := v.s.containers[req.GetContainerId()]
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats()}, nil
}

// ListContainerStats with the filter of one id works even if other shims hang, and for an exited container. CRI-O lists only
// running ones.
func (v *runtimeService) ListContainerStats(_ context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	resp := &runtimeapi.ListContainerStatsResponse{}
	for id, c := range v.s.containers {
		if want := req.GetFilter().GetId(); (want == "" || want == id) && (c.state == cri.Running || !v.s.traits.crio) {
			resp.Stats = append(resp.Stats, c.stats())
		}
	}
	return resp, nil
}

func (c *container) stats() *runtimeapi.ContainerStats {
	u := c.sample()
	layer := &runtimeapi.FilesystemUsage{
		Timestamp: u.at.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: c.pod.server.imageFS},
		UsedBytes: &runtimeapi.UInt64Value{Value: u.bytes}, InodesUsed: &runtimeapi.UInt64Value{Value: u.inodes},
	}
	if c.pod.server.traits.crio {
		layer.FsId.Mountpoint = path.Join(c.pod.server.imageFS, "overlay", c.spec.ID, "merged")
	} else if c.spec.Unsampled || u.at.Before(c.spec.CreatedAt) {
		layer.Timestamp, layer.UsedBytes.Value, layer.InodesUsed.Value = 0, 0, 0
	}
	return &runtimeapi.ContainerStats{
		Attributes:    &runtimeapi.ContainerAttributes{Id: c.spec.ID, Metadata: c.metadata()},
		WritableLayer: layer,
	}
}

// layerSample is what a container had written at a time.
type layerSample struct {
	at            time.Time
	bytes, inodes uint64
}

// sample returns what the runtime knows of a container's writable layer.
func (c *container) sample() layerSample {
	now := layerSample{time.Now(), c.spec.WritableBytes, c.spec.WritableInodes}
	every := c.pod.server.sampling
	if every == 0 || c.pod.server.traits.crio {
		return now
	}
	if now.at = now.at.Truncate(every); now.at.After(c.sampled.at) {
		c.sampled = now // nothing was written since
	}
	return c.sampled
}

// nano returns a CRI timestamp; 0 for the zero time.
func nano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
