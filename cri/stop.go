package cri

import (
	"context"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopContainer asks a container to exit, and kills it if it still runs after grace, which is rounded
// up to whole seconds. 0 kills at once (CRI-O sends SIGTERM just before). The call takes up to grace
// plus 10 s. Do not end it before grace has passed: that ends only the wait, and containerd then never
// kills. A second stop with a shorter grace shortens a longer one in flight. A container that has
// exited or is gone is not an error.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	seconds := wholeSeconds(grace)
	limit := max(c.timeout, time.Duration(seconds)*time.Second+stopMargin)
	_, err := call(ctx, limit, "stop container "+short(id), c.runtime.StopContainer,
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	return unlessGone(err)
}

// StopSandbox stops all that still runs in a sandbox and tears down its network. containerd kills at
// once. CRI-O takes the deadline less 2 s as the grace period, and tears down the network first. A
// failing network plugin therefore keeps the containers alive, so stop the containers before. An error
// may come after everything is dead. A sandbox that is gone is not an error.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	return c.stopSandboxWithin(ctx, id, c.stopSandbox)
}

// StopDeadSandbox tears down the network of a sandbox that is not ready and has no container, and gives a
// slow network plugin more time than StopSandbox does.
func (c *Client) StopDeadSandbox(ctx context.Context, id string) error {
	return c.stopSandboxWithin(ctx, id, max(c.timeout, stopDeadSandboxTimeout))
}

func (c *Client) stopSandboxWithin(ctx context.Context, id string, limit time.Duration) error {
	_, err := call(ctx, limit, "stop sandbox "+short(id), c.runtime.StopPodSandbox,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return unlessGone(err)
}

// RemoveContainer removes a container with its writable layer; its log stays. It kills a running
// container without warning, so check the state before. A container that is gone is not an error.
// containerd answers before the space is free.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := call(ctx, max(c.timeout, removeTimeout), "remove container "+short(id), c.runtime.RemoveContainer,
		&runtimeapi.RemoveContainerRequest{ContainerId: id})
	return unlessGone(err)
}

// RemoveSandbox removes a sandbox with all its containers; the logs stay. It kills a running sandbox
// without warning, so check the state before. A sandbox that is gone is not an error.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, max(c.timeout, removeTimeout), "remove sandbox "+short(id), c.runtime.RemovePodSandbox,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return unlessGone(err)
}

// wholeSeconds rounds a grace period up, so that a short one does not become a kill, and limits it to
// what a deadline can hold.
func wholeSeconds(d time.Duration) int64 {
	const longest = int64(math.MaxInt64/time.Second) - int64(stopMargin/time.Second)
	if d <= 0 {
		return 0
	}
	s := int64(d / time.Second)
	if d%time.Second != 0 {
		s++
	}
	return min(s, longest)
}
