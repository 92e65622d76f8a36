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

// Sandbox is one attempt at running a pod.
type Sandbox struct {
	ID        string
	Name      string // of the pod
	Namespace string
	UID       string
	Attempt   uint32 // grows each time a kubelet re-creates the pod's sandbox
	// Ready is the runtime's word. CRI-O says ready of a sandbox whose containers
	// were all killed from outside until StopSandbox; a runtime with a hung shim
	// says it for as long as the shim hangs.
	Ready          bool
	CreatedAt      time.Time // zero = not told
	Labels         map[string]string
	Annotations    map[string]string // the pod's own, as when the sandbox was made
	RuntimeHandler string            // "" = the default one
}

// SandboxDetail adds what only a verbose status tells. What the runtime does not
// tell is absent: CRI-O has neither PID nor image for a sandbox without a pause
// process.
type SandboxDetail struct {
	Sandbox
	PID          int    // of the pause process; 0 = not told
	CgroupParent string // the pod's cgroup as the kubelet gave it: "/kubepods/burstable/pod<uid>", "…-pod<uid>.slice"; "" = not told
	Image        string // reference or id of the pause image; "" = not told
	LogDirectory string // absolute; "" = not told
	// Resources are the limits of all containers together, Overhead what the
	// runtime class adds.
	Resources, Overhead Resources
}

// Sandboxes lists all sandboxes, ready or not, from the runtime's memory.
func (c *Client) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	resp, err := call(ctx, c.timeout, "list sandboxes", c.runtime.ListPodSandbox,
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{}})
	if err != nil {
		return nil, err
	}
	out := make([]Sandbox, 0, len(resp.GetItems()))
	for _, p := range resp.GetItems() {
		if p.GetId() != "" {
			out = append(out, sandboxOf(p))
		}
	}
	return out, nil
}

// HasPods reports whether any sandbox is ready.
func (c *Client) HasPods(ctx context.Context) (bool, error) {
	all, err := c.Sandboxes(ctx)
	return slices.ContainsFunc(all, func(s Sandbox) bool { return s.Ready }), err
}

// Sandbox looks one sandbox up without asking its shim. ErrGone = no such sandbox.
func (c *Client) Sandbox(ctx context.Context, id string) (Sandbox, error) {
	resp, err := c.sandboxStatus(ctx, "look up sandbox ", id, false)
	if err != nil {
		return Sandbox{}, err
	}
	return sandboxOf(resp.GetStatus()), nil
}

// SandboxDetail asks for the verbose status. containerd asks the sandbox's shim
// for it: one hung shim makes this call run into its deadline, and no other one.
func (c *Client) SandboxDetail(ctx context.Context, id string) (SandboxDetail, error) {
	resp, err := c.sandboxStatus(ctx, "inspect sandbox ", id, true)
	if err != nil {
		return SandboxDetail{}, err
	}
	info := decodeSandboxInfo(resp.GetInfo()["info"])
	return SandboxDetail{
		Sandbox:      sandboxOf(resp.GetStatus()),
		PID:          info.PID.pid(),
		CgroupParent: info.cgroupParent(),
		Image:        info.image(),
		LogDirectory: absolute(info.Config.LogDirectory),
		Resources:    info.resources(),
		Overhead:     info.overhead(),
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

// sandboxMessage is what a list entry and a status have in common.
type sandboxMessage interface {
	GetId() string
	GetMetadata() *runtimeapi.PodSandboxMetadata
	GetState() runtimeapi.PodSandboxState
	GetCreatedAt() int64
	GetLabels() map[string]string
	GetAnnotations() map[string]string
	GetRuntimeHandler() string
}

// sandboxOf translates a message. A sandbox without metadata still carries the
// pod's identity in its labels.
func sandboxOf(m sandboxMessage) Sandbox {
	meta, labels := m.GetMetadata(), m.GetLabels()
	return Sandbox{
		ID:             m.GetId(),
		Name:           first(meta.GetName(), labels[labelPodName]),
		Namespace:      first(meta.GetNamespace(), labels[labelPodNamespace]),
		UID:            first(meta.GetUid(), labels[labelPodUID]),
		Attempt:        meta.GetAttempt(),
		Ready:          m.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:      unixNano(m.GetCreatedAt()),
		Labels:         labels,
		Annotations:    m.GetAnnotations(),
		RuntimeHandler: m.GetRuntimeHandler(),
	}
}
