package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunContainer starts another container in a pod, or another attempt of one, and adds it to the
// pod.
func (l *Lab) RunContainer(ctx context.Context, pod *RunningPod, spec ContainerSpec) (RunningContainer, error) {
	spec = spec.complete(pod.PodSpec)
	c, err := l.createContainer(ctx, pod, spec)
	if err == nil && !spec.Created {
		_, err = l.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ID})
	}
	if err != nil {
		return RunningContainer{}, fmt.Errorf("run container %s: %w", spec.Name, err)
	}
	pod.Containers = append(pod.Containers, c)
	return c, nil
}

func (l *Lab) createContainer(ctx context.Context, pod *RunningPod, spec ContainerSpec) (RunningContainer, error) {
	capacity, err := memoryCapacity()
	if err != nil {
		return RunningContainer{}, err
	}
	mounts := spec.Mounts
	if !pod.Bare {
		kubelet, err := l.kubeletMounts(pod.PodSpec, spec)
		if err != nil {
			return RunningContainer{}, err
		}
		mounts = append(kubelet, mounts...)
	}
	log := filepath.Join(spec.Name, fmt.Sprintf("%d.log", spec.Attempt))
	c := RunningContainer{
		ContainerSpec: spec,
		OOMScoreAdj:   OOMScoreAdj(pod.QoS, pod.Critical, spec.MemoryRequest, capacity),
		LogPath:       filepath.Join(pod.LogDirectory, log),
	}
	if err := os.MkdirAll(filepath.Dir(c.LogPath), 0o755); err != nil {
		return RunningContainer{}, err
	}
	config := &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: spec.Name, Attempt: spec.Attempt},
		Image:       &cri.ImageSpec{Image: spec.Image, UserSpecifiedImage: spec.Image},
		Args:        spec.Args,
		Labels:      containerLabels(pod.PodSpec, spec),
		Annotations: containerAnnotations(pod.PodSpec, spec),
		LogPath:     log,
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{
				MemoryLimitInBytes: spec.MemoryLimit,
				CpuShares:          cpuShares,
				OomScoreAdj:        c.OOMScoreAdj,
			},
			SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: namespaces()},
		},
	}
	for _, m := range mounts {
		config.Mounts = append(config.Mounts, &cri.Mount{HostPath: m.Host, ContainerPath: m.Container})
	}
	answer, err := l.runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: pod.SandboxID, Config: config, SandboxConfig: pod.config,
	})
	if err != nil {
		return RunningContainer{}, err
	}
	c.ID = answer.GetContainerId()
	c.Cgroup = l.containerCgroup(pod, c.ID)
	return c, nil
}

// ResizeMemory changes the memory limit of a running container in place, as a kubelet does.
func (l *Lab) ResizeMemory(ctx context.Context, containerID string, limit int64) error {
	_, err := l.runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{
		ContainerId: containerID, Linux: &cri.LinuxContainerResources{MemoryLimitInBytes: limit},
	})
	if err != nil {
		return fmt.Errorf("resize container %s: %w", containerID, err)
	}
	return nil
}

// KillContainer kills all processes of a container with SIGKILL, without the runtime, and returns
// when they are gone.
func (l *Lab) KillContainer(ctx context.Context, c RunningContainer) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !isBelow(c.Cgroup, l.Cgroup()) {
		return fmt.Errorf("kill container %s: cgroup %q is not the lab's", c.ID, c.Cgroup)
	}
	own := cgroups{path: c.Cgroup, hierarchies: l.cgroups.hierarchies}
	if err := own.killAll(ctx); err != nil {
		return fmt.Errorf("kill container %s: %w", c.ID, err)
	}
	return nil
}

// WaitExit waits until a container has ended and returns its exit code.
func (l *Lab) WaitExit(ctx context.Context, containerID string) (int, error) {
	code, _, err := l.WaitReason(ctx, containerID)
	return code, err
}

// WaitReason waits until a container has ended, and returns its exit code and the runtime's reason, such as
// "Error" or "OOMKilled".
func (l *Lab) WaitReason(ctx context.Context, containerID string) (code int, reason string, err error) {
	var answer *cri.ContainerStatusResponse
	err = poll(ctx, func() (bool, error) {
		var err error
		answer, err = l.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: containerID})
		if err != nil {
			return status.Code(err) == codes.NotFound, err
		}
		state := answer.GetStatus().GetState()
		return state == cri.ContainerState_CONTAINER_EXITED, errors.New(state.String())
	})
	if err == nil && answer == nil {
		err = errors.New("removed")
	}
	if err != nil {
		return 0, "", fmt.Errorf("wait for container %s: %w", containerID, err)
	}
	return int(answer.GetStatus().GetExitCode()), answer.GetStatus().GetReason(), nil
}

// PID returns the process ID of a container in the host's PID namespace.
func (l *Lab) PID(ctx context.Context, containerID string) (int, error) {
	answer, err := l.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: containerID, Verbose: true})
	if err != nil {
		return 0, fmt.Errorf("ask for container %s: %w", containerID, err)
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil {
		return 0, fmt.Errorf("read container %s: %w", containerID, err)
	}
	return info.PID, nil
}
