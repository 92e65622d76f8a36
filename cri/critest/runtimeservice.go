package critest

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
)

type runtimeService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	s *Server
}

func (v *runtimeService) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: v.s.traits.name, RuntimeVersion: v.s.traits.version, RuntimeApiVersion: "v1",
	}, nil
}

func (v *runtimeService) Status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	resp := &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Reason: "NetworkPluginNotReady", Message: "Network plugin returns error: cni plugin not initialized"},
	}}}
	if req.GetVerbose() {
		resp.Info = v.s.statusInfo()
	}
	return resp, nil
}

func (v *runtimeService) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	resp := &runtimeapi.ListPodSandboxResponse{}
	for _, p := range v.s.pods {
		if id := req.GetFilter().GetId(); id != "" && id != p.spec.ID {
			continue
		}
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
			Id: p.spec.ID, Metadata: p.metadata(), State: p.state(), CreatedAt: p.spec.CreatedAt.UnixNano(),
			Labels: p.spec.Labels, Annotations: p.spec.Annotations,
		})
	}
	return resp, nil
}

// PodSandboxStatus answers from memory, except that containerd's verbose answer needs the shim.
func (v *runtimeService) PodSandboxStatus(ctx context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	p := v.s.pod(req.GetPodSandboxId())
	if p == nil {
		return nil, notFound("sandbox", req.GetPodSandboxId())
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: p.status()}
	if req.GetVerbose() {
		if !v.s.traits.crio {
			if err := v.s.askShim(ctx, p); err != nil {
				return nil, err
			}
		}
		resp.Info = p.info()
	}
	return resp, nil
}

func (p *pod) status() *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id: p.spec.ID, Metadata: p.metadata(), State: p.state(), CreatedAt: p.spec.CreatedAt.UnixNano(),
		Labels: p.spec.Labels, Annotations: p.spec.Annotations,
	}
}

func (p *pod) metadata() *runtimeapi.PodSandboxMetadata {
	return &runtimeapi.PodSandboxMetadata{Name: p.spec.Name, Namespace: p.spec.Namespace, Uid: p.spec.UID, Attempt: p.spec.Attempt}
}

func (p *pod) state() runtimeapi.PodSandboxState {
	if p.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (v *runtimeService) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	resp := &runtimeapi.ListContainersResponse{}
	for _, p := range v.s.pods {
		for _, c := range p.containers {
			if id := req.GetFilter().GetId(); id != "" && id != c.spec.ID {
				continue
			}
			m := &runtimeapi.Container{
				Id: c.spec.ID, PodSandboxId: p.spec.ID, Metadata: c.metadata(), State: c.message(),
				CreatedAt: c.spec.CreatedAt.UnixNano(), Image: c.imageSpec(c.spec.Image), ImageRef: c.listRef(),
				Labels: c.spec.Labels, Annotations: c.spec.Annotations,
			}
			if v.s.traits.imageID {
				m.ImageId = c.image.id
			}
			resp.Containers = append(resp.Containers, m)
		}
	}
	return resp, nil
}

func (v *runtimeService) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	c := v.s.containers[req.GetContainerId()]
	if c == nil {
		return nil, notFound("container", req.GetContainerId())
	}
	st := &runtimeapi.ContainerStatus{
		Id: c.spec.ID, Metadata: c.metadata(), State: c.message(), CreatedAt: c.spec.CreatedAt.UnixNano(),
		StartedAt: nano(c.started), FinishedAt: nano(c.finished), ExitCode: c.exitCode,
		Image: c.imageSpec(c.statusImage()), ImageRef: c.image.digestOrID(), LogPath: c.spec.LogPath,
		Labels: c.spec.Labels, Annotations: c.spec.Annotations, Mounts: c.mounts(),
		Resources: &runtimeapi.ContainerResources{Linux: c.resources()},
	}
	if v.s.traits.imageID {
		st.ImageId = c.image.id
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: st}
	if req.GetVerbose() {
		resp.Info = c.info()
	}
	return resp, nil
}

func (c *container) metadata() *runtimeapi.ContainerMetadata {
	return &runtimeapi.ContainerMetadata{Name: c.spec.Name, Attempt: c.spec.Attempt}
}

func (c *container) message() runtimeapi.ContainerState {
	switch c.state {
	case cri.Created:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case cri.Running:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	case cri.Exited:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	default:
		return runtimeapi.ContainerState_CONTAINER_UNKNOWN
	}
}

func (c *container) imageSpec(name string) *runtimeapi.ImageSpec {
	spec := &runtimeapi.ImageSpec{Image: name}
	if c.pod.server.traits.imageID {
		spec.UserSpecifiedImage = c.spec.Image
	}
	return spec
}

func (c *container) mounts() []*runtimeapi.Mount {
	var out []*runtimeapi.Mount
	for _, m := range c.spec.Mounts {
		mount := &runtimeapi.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, Readonly: m.ReadOnly}
		if m.Image != "" {
			mount.Image = &runtimeapi.ImageSpec{Image: m.Image}
		}
		out = append(out, mount)
	}
	return out
}

func (v *runtimeService) RemoveContainer(ctx context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	if c := v.s.containers[req.GetContainerId()]; c != nil {
		if c.state == cri.Running {
			if err := v.s.askShim(ctx, c.pod); err != nil {
				return nil, err
			}
		}
		if v.s.containers[req.GetContainerId()] == c {
			v.s.removeContainer(c)
		}
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (v *runtimeService) RemovePodSandbox(ctx context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	if p := v.s.pod(req.GetPodSandboxId()); p != nil {
		if err := v.s.askShim(ctx, p); err != nil {
			return nil, err
		}
		if slices.Contains(v.s.pods, p) {
			v.s.removePod(p)
		}
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// askShim waits until the shim of a pod answers. It releases the lock while it waits.
func (s *Server) askShim(ctx context.Context, p *pod) error {
	for p.frozen != nil {
		frozen := p.frozen
		s.mu.Unlock()
		select {
		case <-frozen:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	return nil
}

func notFound(kind, id string) error {
	return status.Error(codes.NotFound, fmt.Sprintf("an error occurred when try to find %s %q: not found", kind, id))
}
