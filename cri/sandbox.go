package cri

import (
	"context"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels in which a kubelet repeats a pod's identity.
const (
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
	labelPodUID       = "io.kubernetes.pod.uid"
)

// Sandbox is one attempt to run a pod.
type Sandbox struct {
	ID        string
	Name      string // of the pod
	Namespace string
	UID       string
	Attempt   uint32 // increases each time a kubelet re-creates the pod's sandbox
	// Ready is as reported by the runtime. CRI-O reports a sandbox as ready until StopSandbox, even if
	// all its containers were killed from outside. A runtime with a hung shim reports it for as long as
	// the shim hangs.
	Ready       bool
	CreatedAt   time.Time // zero = not reported
	Labels      map[string]string
	Annotations map[string]string // the pod's own, from when the sandbox was created
}

// SandboxDetail adds the fields that only a verbose status contains.
type SandboxDetail struct {
	Sandbox
	CgroupParent string // as the kubelet set it: "/kubepods/burstable/pod<uid>", "…-pod<uid>.slice"; "" = not reported
	Image        string // reference or id of the pause image; "" = not reported
}

// Sandboxes lists all sandboxes, ready or not, from the runtime's memory.
func (c *Client) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	resp, err := call(ctx, c.timeout, "list sandboxes", c.runtime.ListPodSandbox,
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{}})
	if err != nil {
		return nil, err
	}
	return listed(resp.GetItems(), func(m *runtimeapi.PodSandbox) Sandbox { return sandboxOf(m) }), nil
}

// HasPods reports whether any sandbox is ready.
func (c *Client) HasPods(ctx context.Context) (bool, error) {
	all, err := c.Sandboxes(ctx)
	return slices.ContainsFunc(all, func(s Sandbox) bool { return s.Ready }), err
}

// Sandbox looks up one sandbox without involving its shim. ErrGone = no such sandbox.
func (c *Client) Sandbox(ctx context.Context, id string) (Sandbox, error) {
	resp, err := c.sandboxStatus(ctx, "look up sandbox ", id, false)
	if err != nil {
		return Sandbox{}, err
	}
	return sandboxOf(resp.GetStatus()), nil
}

// SandboxDetail requests the verbose status. containerd gets it from the sandbox's shim: a hung shim
// makes this call time out, and no other call.
func (c *Client) SandboxDetail(ctx context.Context, id string) (SandboxDetail, error) {
	resp, err := c.sandboxStatus(ctx, "inspect sandbox ", id, true)
	if err != nil {
		return SandboxDetail{}, err
	}
	info := decode[sandboxInfo](resp.GetInfo()["info"])
	return SandboxDetail{
		Sandbox:      sandboxOf(resp.GetStatus()),
		CgroupParent: info.cgroupParent(),
		Image:        info.image(),
	}, nil
}

func (c *Client) sandboxStatus(ctx context.Context, verb, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	op := verb + short(id)
	resp, err := call(ctx, c.timeout, op, c.runtime.PodSandboxStatus,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: verbose})
	if err != nil {
		return nil, err
	}
	return resp, answersFor(op, id, resp.GetStatus().GetId())
}

// sandboxMessage holds the fields that a list entry and a status have in common.
type sandboxMessage interface {
	GetId() string
	GetMetadata() *runtimeapi.PodSandboxMetadata
	GetState() runtimeapi.PodSandboxState
	GetCreatedAt() int64
	GetLabels() map[string]string
	GetAnnotations() map[string]string
}

// sandboxOf translates a message. A sandbox without metadata still has the pod's identity in its
// labels.
func sandboxOf(m sandboxMessage) Sandbox {
	meta, labels := m.GetMetadata(), m.GetLabels()
	return Sandbox{
		ID:          m.GetId(),
		Name:        first(meta.GetName(), labels[labelPodName]),
		Namespace:   first(meta.GetNamespace(), labels[labelPodNamespace]),
		UID:         first(meta.GetUid(), labels[labelPodUID]),
		Attempt:     meta.GetAttempt(),
		Ready:       m.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:   unixNano(m.GetCreatedAt()),
		Labels:      labels,
		Annotations: m.GetAnnotations(),
	}
}
