package cri

import (
	"context"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AnnotationGracePeriod is the container annotation in which a kubelet stores the pod's
// terminationGracePeriodSeconds.
const AnnotationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"

// State is the state of a container.
type State uint8

// The states of a container. A state that only a newer runtime knows also becomes Unknown.
const (
	Unknown State = iota
	Created
	Running
	Exited
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Created:
		return "created"
	case Running:
		return "running"
	case Exited:
		return "exited"
	default:
		return "unknown"
	}
}

// Container is one attempt to run a container of a pod.
type Container struct {
	ID        string
	SandboxID string
	Name      string
	Attempt   uint32
	State     State
	CreatedAt time.Time // zero = not reported
	// The image, under the names by which the runtime knows it. Runtimes and releases differ in which
	// of them they set and in what form. ImageNeeds uses them all.
	Image     string // as requested
	ImageID   string // "sha256:<hex>" or bare hex; "" on containerd before 2.3 and CRI-O before 1.30
	ImageRef  string // containerd: the image's id; CRI-O: repository@digest
	UserImage string // as the pod's author wrote it; "" = not reported

	Labels      map[string]string
	Annotations map[string]string // the kubelet's own, not the pod's
}

// GracePeriod returns the pod's own termination grace period, which a kubelet stores on each container;
// false = not reported.
func (c Container) GracePeriod() (time.Duration, bool) {
	s, err := strconv.ParseInt(c.Annotations[AnnotationGracePeriod], 10, 64)
	if err != nil || s < 0 || s > int64(math.MaxInt64/time.Second) {
		return 0, false
	}
	return time.Duration(s) * time.Second, true
}

// ContainerDetail adds the fields that only a status contains. Its Image may differ from the name that
// the container was created from: containerd returns the image's first tag.
type ContainerDetail struct {
	Container
	StartedAt   time.Time // zero = never started
	FinishedAt  time.Time // zero = has not ended
	ExitCode    int32     // once it has ended
	PID         int       // of the container's first process; 0 = not running or not reported
	CgroupsPath string    // from the OCI spec: a path or "slice:prefix:name"; "" = not reported
	LogPath     string    // absolute; "" = not reported
	Resources   Resources
	Mounts      []Mount
	// SandboxCgroup is the cgroup of the sandbox's processes if they run the container, as those of a virtual machine do;
	// "" = they do not. No runtime reports it.
	SandboxCgroup string
}

// Mount is a host path or an image that is mounted into a container.
type Mount struct {
	ContainerPath string
	HostPath      string // "" for an image
	Image         string // reference of an image volume; "" = none
	ReadOnly      bool
}

// Listing holds all containers and sandboxes of a runtime. The sandboxes were listed second, so that each
// container's sandbox is included.
type Listing struct {
	Containers []Container
	Sandboxes  []Sandbox
}

// Containers lists all containers, including exited ones, from the runtime's memory.
func (c *Client) Containers(ctx context.Context) ([]Container, error) {
	resp, err := call(ctx, c.timeout, "list containers", c.runtime.ListContainers,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{}})
	if err != nil {
		return nil, err
	}
	return listed(resp.GetContainers(), func(m *runtimeapi.Container) Container {
		c := containerOf(m)
		c.SandboxID = m.GetPodSandboxId()
		return c
	}), nil
}

// ContainerStatus requests the plain status. It lacks the PID, the cgroup, the sandbox and, on older
// runtimes, the resources. CRI-O returns it even for a container that its storage no longer has, and
// takes 4 s for it if the container's monitor exited before the container. ErrGone = no such container.
func (c *Client) ContainerStatus(ctx context.Context, id string) (ContainerDetail, error) {
	resp, err := c.containerStatus(ctx, max(c.timeout, lookUpTimeout), "look up container ", id, false)
	if err != nil {
		return ContainerDetail{}, err
	}
	return detailOf(resp.GetStatus()), nil
}

// ContainerDetail requests the verbose status. No runtime needs a shim to answer it. Only the state,
// the times, the PID and the resources can change during the container's life. ErrGone = no such
// container.
func (c *Client) ContainerDetail(ctx context.Context, id string) (ContainerDetail, error) {
	resp, err := c.containerStatus(ctx, c.timeout, "inspect container ", id, true)
	if err != nil {
		return ContainerDetail{}, err
	}
	d, info := detailOf(resp.GetStatus()), decode[containerInfo](resp.GetInfo()["info"])
	d.SandboxID, d.PID, d.CgroupsPath = info.sandboxID(), info.PID.pid(), cgroupPath(info.Spec.Linux.CgroupsPath)
	d.Resources = d.Resources.or(info.Spec.resources())
	return d, nil
}

func detailOf(s *runtimeapi.ContainerStatus) ContainerDetail {
	return ContainerDetail{
		Container:  containerOf(s),
		StartedAt:  unixNano(s.GetStartedAt()),
		FinishedAt: unixNano(s.GetFinishedAt()), ExitCode: s.GetExitCode(),
		LogPath:   absolute(s.GetLogPath()),
		Resources: resourcesOf(s.GetResources().GetLinux()),
		Mounts:    mountsOf(s.GetMounts()),
	}
}

func (c *Client) containerStatus(ctx context.Context, limit time.Duration, verb, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	op := verb + short(id)
	resp, err := call(ctx, limit, op, c.runtime.ContainerStatus,
		&runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: verbose})
	if err != nil {
		return nil, err
	}
	return resp, answersFor(op, id, resp.GetStatus().GetId())
}

// containerMessage holds the fields that a list entry and a status have in common.
type containerMessage interface {
	GetId() string
	GetMetadata() *runtimeapi.ContainerMetadata
	GetState() runtimeapi.ContainerState
	GetCreatedAt() int64
	GetImage() *runtimeapi.ImageSpec
	GetImageRef() string
	GetImageId() string
	GetLabels() map[string]string
	GetAnnotations() map[string]string
}

func containerOf(m containerMessage) Container {
	return Container{
		ID:          m.GetId(),
		Name:        m.GetMetadata().GetName(),
		Attempt:     m.GetMetadata().GetAttempt(),
		State:       stateOf(m.GetState()),
		CreatedAt:   unixNano(m.GetCreatedAt()),
		Image:       m.GetImage().GetImage(),
		ImageID:     m.GetImageId(),
		ImageRef:    m.GetImageRef(),
		UserImage:   m.GetImage().GetUserSpecifiedImage(),
		Labels:      m.GetLabels(),
		Annotations: m.GetAnnotations(),
	}
}

func stateOf(s runtimeapi.ContainerState) State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return Exited
	default:
		return Unknown
	}
}

func mountsOf(ms []*runtimeapi.Mount) []Mount {
	out := make([]Mount, 0, len(ms))
	for _, m := range ms {
		out = append(out, Mount{
			ContainerPath: m.GetContainerPath(),
			HostPath:      m.GetHostPath(),
			Image:         m.GetImage().GetImage(),
			ReadOnly:      m.GetReadonly(),
		})
	}
	return out
}

// IsContainerCgroup reports whether a cgroup, relative to the hierarchy, is named by a container's ID
// as runtimes name them: ID, runtime-ID, and with the systemd driver runtime-ID.scope, or "slice:runtime-name:ID" if the
// runtime does not use systemd although the kubelet does. The cgroup of the container's monitor is not the container's.
func IsContainerCgroup(rel, id string) bool {
	return isNamedBy(rel, id) && !IsMonitorCgroup(rel, id)
}

// IsMonitorCgroup reports whether a cgroup is that of a container's monitor, as CRI-O names it: with
// conmon_cgroup = "pod", crio-conmon-ID.scope is beside the container's crio-ID.scope.
func IsMonitorCgroup(rel, id string) bool { return id != "" && isNamedBy(rel, "conmon-"+id) }

func isNamedBy(rel, id string) bool {
	name := strings.TrimSuffix(path.Base(rel), ".scope")
	return id != "" && (name == id || strings.HasSuffix(name, "-"+id) || strings.HasSuffix(name, ":"+id))
}
