package critest

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats is safe by id, whatever shims hang elsewhere.
func (v *runtimeService) ContainerStats(_ context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	c := v.s.containers[req.GetContainerId()]
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	return &runtimeapi.ContainerStatsResponse{Stats: c.stats()}, nil
}

// ListContainerStats asks one shim after the other: one that hangs holds it up.
func (v *runtimeService) ListContainerStats(ctx context.Context, _ *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	if err := v.s.askAllShims(ctx); err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListContainerStatsResponse{}
	for _, p := range v.s.pods {
		for _, c := range p.running() {
			resp.Stats = append(resp.Stats, c.stats())
		}
	}
	return resp, nil
}

// ListPodSandboxStats does too, and containerd 1.6 fails altogether without a
// filter when any sandbox is not ready.
func (v *runtimeService) ListPodSandboxStats(ctx context.Context, req *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	if err := v.s.askAllShims(ctx); err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListPodSandboxStatsResponse{}
	for _, p := range v.s.pods {
		if !p.ready {
			if v.s.traits.missingIsNotFound && req.GetFilter() == nil {
				return nil, status.Errorf(codes.Unknown, "failed to decode sandbox container metrics for sandbox %q: sandbox is not ready", p.spec.ID)
			}
			continue
		}
		stats := &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{Id: p.spec.ID, Metadata: p.metadata()},
			Linux:      &runtimeapi.LinuxPodSandboxStats{},
		}
		for _, c := range p.running() {
			stats.Linux.Containers = append(stats.Linux.Containers, c.stats())
		}
		resp.Stats = append(resp.Stats, stats)
	}
	return resp, nil
}

// askAllShims waits for the shims of all pods that run. CRI-O asks none.
func (s *Server) askAllShims(ctx context.Context) error {
	if s.traits.crio {
		return nil
	}
	for _, p := range append([]*pod(nil), s.pods...) {
		if err := s.askShim(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *container) stats() *runtimeapi.ContainerStats {
	layer := &runtimeapi.FilesystemUsage{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: c.pod.server.imageFS},
		UsedBytes: &runtimeapi.UInt64Value{Value: c.spec.WritableBytes}, InodesUsed: &runtimeapi.UInt64Value{Value: c.spec.WritableInodes},
	}
	if c.pod.server.traits.crio {
		layer.FsId.Mountpoint = path.Join(c.pod.server.imageFS, "overlay", c.spec.ID, "merged")
	} else if c.spec.Unsampled {
		layer.Timestamp, layer.UsedBytes.Value, layer.InodesUsed.Value = 0, 0, 0
	}
	return &runtimeapi.ContainerStats{
		Attributes:    &runtimeapi.ContainerAttributes{Id: c.spec.ID, Metadata: c.metadata()},
		WritableLayer: layer,
	}
}

// nano is a CRI time stamp; no time is 0.
func nano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
