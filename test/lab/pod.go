package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSpec describes a pod. Only the name is required.
type PodSpec struct {
	Namespace string // "default" if empty
	Name      string
	UID       string // random if empty
	Attempt   uint32

	QoS      QoS    // empty: derived from the containers' memory
	Critical bool   // gets the oom_score_adj of a system-node-critical pod
	Bare     bool   // like a pod from crictl: no kubelet labels, annotations, mounts or pod cgroup
	Parent   string // of a bare pod: a cgroup parent that is no path from the root, such as "a" or "a.slice"

	// Defaults for containers that set neither.
	MemoryRequest, MemoryLimit int64

	Labels, Annotations map[string]string // kubernetes.io/config.source is "api" unless set here
	TerminationGrace    time.Duration     // 30 s if 0
	LogDirectory        string            // PodLogDir()/<namespace>_<name>_<uid> if empty
	Containers          []ContainerSpec
}

// ContainerSpec describes a container. Only the name is required.
type ContainerSpec struct {
	Name    string
	Attempt uint32
	Image   string   // WorkloadImage if empty
	Args    []string // for the image's program, see test/lab/workload; "pause" if empty

	MemoryRequest, MemoryLimit int64 // bytes

	EmptyDirs map[string]string // volumes on the node filesystem: name to path in the container
	Mounts    []Mount
	Created   bool // create it without starting it
}

// Mount is a bind mount of a container.
type Mount struct {
	Host, Container string
}

// RunningPod is a started pod.
type RunningPod struct {
	PodSpec      // with all defaults filled in
	SandboxID    string
	CgroupParent string // path from the root of every hierarchy
	Containers   []RunningContainer
	config       *cri.PodSandboxConfig
}

// RunningContainer is a started container.
type RunningContainer struct {
	ContainerSpec        // with all defaults filled in
	ID            string // the runtime's ID
	Cgroup        string // path from the root of every hierarchy
	OOMScoreAdj   int64  // as requested; the runtime does not go below its own
	LogPath       string // on the host, in the CRI's log format
}

// ContainerIDs returns the IDs of all containers, in the order of the specification.
func (p *RunningPod) ContainerIDs() []string {
	ids := make([]string, len(p.Containers))
	for i, c := range p.Containers {
		ids[i] = c.ID
	}
	return ids
}

// RunPod starts a pod and its containers, like the kubelet. If a step fails, it removes what it has
// started.
func (l *Lab) RunPod(ctx context.Context, spec PodSpec) (*RunningPod, error) {
	spec, err := l.complete(spec)
	if err != nil {
		return nil, fmt.Errorf("run pod %s: %w", spec.Name, err)
	}
	pod := &RunningPod{PodSpec: spec, CgroupParent: l.cgroupParent(spec)}
	pod.config = sandboxConfig(pod, time.Now())
	pod.config.Linux.CgroupParent = l.runtimeParent(pod)
	if err := os.MkdirAll(spec.LogDirectory, 0o755); err != nil {
		return nil, fmt.Errorf("run pod %s: %w", spec.Name, err)
	}
	answer, err := l.runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod.config})
	if err != nil {
		return nil, fmt.Errorf("run pod %s: %w", spec.Name, err)
	}
	pod.SandboxID = answer.GetPodSandboxId()
	for _, c := range spec.Containers {
		if _, err := l.RunContainer(ctx, pod, c); err != nil {
			return nil, errors.Join(fmt.Errorf("run pod %s: %w", spec.Name, err), l.RemovePod(context.WithoutCancel(ctx), pod))
		}
	}
	return pod, nil
}

// Complete fills in the defaults that do not depend on the machine.
func (s PodSpec) Complete() PodSpec {
	if s.Namespace == "" {
		s.Namespace = "default"
	}
	if s.TerminationGrace == 0 {
		s.TerminationGrace = 30 * time.Second
	}
	containers := make([]ContainerSpec, len(s.Containers))
	for i, c := range s.Containers {
		containers[i] = c.complete(s)
	}
	s.Containers = containers
	if s.QoS == "" {
		s.QoS = qosOf(containers)
	}
	return s
}

// complete fills in the defaults of the specification.
func (l *Lab) complete(spec PodSpec) (PodSpec, error) {
	if spec.Name == "" {
		return spec, errors.New("no name")
	}
	spec = spec.Complete()
	if spec.UID == "" {
		spec.UID = newUID()
	}
	if spec.LogDirectory == "" {
		spec.LogDirectory = filepath.Join(l.PodLogDir(), spec.Namespace+"_"+spec.Name+"_"+spec.UID)
	}
	return spec, nil
}

func (c ContainerSpec) complete(pod PodSpec) ContainerSpec {
	if c.Image == "" {
		c.Image = WorkloadImage
	}
	if len(c.Args) == 0 {
		c.Args = []string{"pause"}
	}
	if c.MemoryRequest == 0 && c.MemoryLimit == 0 {
		c.MemoryRequest, c.MemoryLimit = pod.MemoryRequest, pod.MemoryLimit
	}
	return c
}

// cgroupParent returns the pod's cgroup. A bare pod's containers are directly below the lab's own
// cgroup. For another parent, runc starts at its own cgroup, the runtime's: on v2 it puts the parent
// beside it. Without systemd, a slice is part of the containers' names.
func (l *Lab) cgroupParent(spec PodSpec) string {
	from := filepath.Join(l.Cgroup(), runtimeCgroup)
	if l.cgroups.main().v2 {
		from = l.Cgroup()
	}
	switch {
	case isSlice(spec.Parent):
		return from
	case spec.Parent != "":
		return filepath.Join(from, spec.Parent)
	case spec.Bare:
		return l.Cgroup()
	case l.systemd:
		return filepath.Join(l.PodsCgroup(), podSlice(spec.QoS, spec.UID))
	}
	return filepath.Join(l.PodsCgroup(), podCgroup(spec.QoS, spec.UID))
}

func isSlice(parent string) bool { return strings.HasSuffix(parent, ".slice") }

// containerCgroup returns the cgroup of a container, below its pod's cgroup.
func (l *Lab) containerCgroup(pod *RunningPod, id string) string {
	if l.systemd {
		id = "cri-containerd-" + id + ".scope"
	} else if isSlice(pod.Parent) {
		id = pod.Parent + ":cri-containerd:" + id
	}
	return filepath.Join(pod.CgroupParent, id)
}

// runtimeParent returns the pod's cgroup in the runtime's notation: a path, or the name of a slice.
func (l *Lab) runtimeParent(pod *RunningPod) string {
	if pod.Parent != "" {
		return pod.Parent
	}
	if l.systemd {
		return filepath.Base(pod.CgroupParent)
	}
	return pod.CgroupParent
}

func sandboxConfig(pod *RunningPod, now time.Time) *cri.PodSandboxConfig {
	limit := int64(0)
	for _, c := range pod.PodSpec.Containers {
		limit += c.MemoryLimit
	}
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: pod.UID, Attempt: pod.Attempt},
		LogDirectory: pod.LogDirectory,
		Labels:       podLabels(pod.PodSpec),
		Annotations:  podAnnotations(pod.PodSpec, now),
		Linux: &cri.LinuxPodSandboxConfig{
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces()},
			Overhead:        &cri.LinuxContainerResources{},
			Resources:       &cri.LinuxContainerResources{MemoryLimitInBytes: limit, CpuShares: cpuShares * int64(len(pod.PodSpec.Containers))},
		},
	}
}

// namespaces puts pods on the host's network, so that the lab needs no CNI.
func namespaces() *cri.NamespaceOption {
	return &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}
}

// cpuShares are those of a container that requests no CPU, as the kubelet sets them.
const cpuShares = 2

// StopPod stops a pod: containerd kills it at once. A pod that no longer exists counts as stopped.
func (l *Lab) StopPod(ctx context.Context, pod *RunningPod) error {
	_, err := l.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod.SandboxID})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("stop pod %s: %w", pod.Name, err)
	}
	return nil
}

// RemovePod stops a pod and removes it with its cgroup, its volumes and its logs, like the kubelet
// after a pod's deletion.
func (l *Lab) RemovePod(ctx context.Context, pod *RunningPod) error {
	if err := l.removeSandbox(ctx, pod); err != nil {
		return err
	}
	err := errors.Join(os.RemoveAll(pod.LogDirectory), os.RemoveAll(filepath.Join(l.KubeletRoot(), "pods", pod.UID)))
	if !pod.Bare && l.systemd {
		err = errors.Join(err, run(exec.CommandContext(ctx, "systemctl", "stop", filepath.Base(pod.CgroupParent))))
	}
	if !pod.Bare && !l.systemd {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		own := cgroups{path: pod.CgroupParent, hierarchies: l.cgroups.hierarchies}
		err = errors.Join(err, own.remove(ctx))
	}
	if err != nil {
		return fmt.Errorf("remove pod %s: %w", pod.Name, err)
	}
	return nil
}

// removeSandbox stops a pod and removes it from the runtime. If something else stops the pod at the same time, containerd 1.6 may
// answer that it has stopped and then that a container still runs, so that both are tried again, as the kubelet does.
func (l *Lab) removeSandbox(ctx context.Context, pod *RunningPod) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return poll(ctx, func() (bool, error) {
		if err := l.StopPod(ctx, pod); err != nil {
			return false, err
		}
		if _, err := l.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: pod.SandboxID}); err != nil {
			return false, fmt.Errorf("remove pod %s: %w", pod.Name, err)
		}
		return true, nil
	})
}

// Ready reports whether the runtime lists a sandbox as ready. It does not ask the sandbox's shim.
func (l *Lab) Ready(ctx context.Context, sandboxID string) (bool, error) {
	answer, err := l.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{Id: sandboxID}})
	if err != nil {
		return false, fmt.Errorf("list sandbox %s: %w", sandboxID, err)
	}
	return len(answer.GetItems()) == 1 && answer.GetItems()[0].GetState() == cri.PodSandboxState_SANDBOX_READY, nil
}
