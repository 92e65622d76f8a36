package cri

import (
	"context"
	"math"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// annotationGracePeriod is where a kubelet leaves the pod's
// terminationGracePeriodSeconds on each container.
const annotationGracePeriod = "io.kubernetes.pod.terminationGracePeriod"

// State is a container's state.
type State uint8

// The states of a container. Unknown is also what a newer runtime's unheard-of
// state becomes.
const (
	Unknown State = iota
	Created
	Running
	Exited
)

// String is the state in lower case.
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

// Container is one attempt at running a container of a pod.
type Container struct {
	ID        string
	SandboxID string
	Name      string
	Attempt   uint32
	State     State
	CreatedAt time.Time // zero = not told
	// The image under the names the runtime knows it by; which ones are filled in
	// and in what shape differs between runtimes and releases. ImageNeeds takes all.
	Image     string // as asked for
	ImageID   string // "sha256:<hex>" or bare hex; "" on containerd before 2.3 and CRI-O before 1.30
	ImageRef  string // containerd: the image's id; CRI-O: repository@digest
	UserImage string // as the pod's author wrote it; "" = not told

	Labels      map[string]string
	Annotations map[string]string // the kubelet's own, not the pod's
}

// GracePeriod is the pod's own termination grace period, which a kubelet leaves
// on each container; false = not told.
func (c Container) GracePeriod() (time.Duration, bool) {
	s, err := strconv.ParseInt(c.Annotations[annotationGracePeriod], 10, 64)
	if err != nil || s < 0 || s > int64(math.MaxInt64/time.Second) {
		return 0, false
	}
	return time.Duration(s) * time.Second, true
}

// ContainerDetail adds what only a status tells. Its Image may be another name of the
// image than the one the container was made from: containerd gives the image's first tag.
type ContainerDetail struct {
	Container
	StartedAt   time.Time // zero = never started
	FinishedAt  time.Time // zero = not finished
	ExitCode    int32
	PID         int    // of the container's first process; 0 = not running or not told
	CgroupsPath string // of the OCI spec: a path or "slice:prefix:name"; "" = not told
	LogPath     string // absolute; "" = not told
	Resources   Resources
	Mounts      []Mount
}

// Mount is a host path or an image mounted into a container.
type Mount struct {
	ContainerPath string
	HostPath      string // "" for an image
	Image         string // reference of an image volume; "" = none
	ReadOnly      bool
}

// Containers lists all containers, exited ones too, from the runtime's memory.
func (c *Client) Containers(ctx context.Context) ([]Container, error) {
	resp, err := call(ctx, c.timeout, "list containers", c.runtime.ListContainers,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{}})
	if err != nil {
		return nil, err
	}
	out := make([]Container, 0, len(resp.GetContainers()))
	for _, m := range resp.GetContainers() {
		if m.GetId() == "" {
			continue
		}
		ctr := containerOf(m)
		ctr.SandboxID = m.GetPodSandboxId()
		out = append(out, ctr)
	}
	return out, nil
}

// ContainerStatus asks for the plain status: without the PID, the cgroup, the sandbox and, of
// older runtimes, the resources. CRI-O has it, too, of a container of which its storage knows
// nothing any more, and takes 4 s for it where the container's monitor ended before the
// container. ErrGone = no such container.
func (c *Client) ContainerStatus(ctx context.Context, id string) (ContainerDetail, error) {
	resp, err := c.containerStatus(ctx, max(c.timeout, lookUpTimeout), "look up container ", id, false)
	if err != nil {
		return ContainerDetail{}, err
	}
	return detailOf(resp.GetStatus()), nil
}

// ContainerDetail asks for the verbose status. No runtime asks a shim for it;
// all of it but state, times, PID and resources stays the same for the
// container's life. ErrGone = no such container.
func (c *Client) ContainerDetail(ctx context.Context, id string) (ContainerDetail, error) {
	resp, err := c.containerStatus(ctx, c.timeout, "inspect container ", id, true)
	if err != nil {
		return ContainerDetail{}, err
	}
	d, info := detailOf(resp.GetStatus()), decodeContainerInfo(resp.GetInfo()["info"])
	d.SandboxID, d.PID, d.CgroupsPath = info.sandboxID(), info.PID.pid(), cgroupPath(info.Spec.Linux.CgroupsPath)
	d.Resources = d.Resources.or(info.Spec.resources())
	return d, nil
}

func detailOf(s *runtimeapi.ContainerStatus) ContainerDetail {
	return ContainerDetail{
		Container:  containerOf(s),
		StartedAt:  unixNano(s.GetStartedAt()),
		FinishedAt: unixNano(s.GetFinishedAt()),
		ExitCode:   s.GetExitCode(),
		LogPath:    absolute(s.GetLogPath()),
		Resources:  resourcesOf(s.GetResources().GetLinux()),
		Mounts:     mountsOf(s.GetMounts()),
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

// containerMessage is what a list entry and a status have in common.
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
