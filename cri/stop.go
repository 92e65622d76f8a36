package cri

import (
	"context"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// StopContainer asks a container to end and kills it when it has not ended after
// grace, which is rounded up to whole seconds; 0 kills at once (CRI-O sends
// SIGTERM just before). The call takes up to grace and 10 s more. A caller who
// ends it before grace has passed ends the wait only: containerd will then never
// kill. A second, shorter stop beside a longer one shortens it. It is no error
// when the container has exited already or is gone.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	seconds := wholeSeconds(grace)
	limit := max(c.timeout, time.Duration(seconds)*time.Second+stopMargin)
	_, err := call(ctx, limit, "stop container "+short(id), c.runtime.StopContainer,
		&runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	return unlessGone(err)
}

// StopSandbox stops whatever of a sandbox still runs, and takes its network down.
// containerd kills at once; CRI-O takes the deadline, less 2 s, for a grace
// period, and takes the network down first, so that a failing network plugin
// keeps the containers alive: stop the containers before. An error may come after
// everything is dead. It is no error when the sandbox is gone.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, c.stopSandbox, "stop sandbox "+short(id), c.runtime.StopPodSandbox,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return unlessGone(err)
}

// RemoveContainer removes a container with its writable layer; its log stays. A
// running one is killed without a word: check the state before. It is no error
// when the container is gone. containerd answers before the space is free.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := call(ctx, max(c.timeout, removeTimeout), "remove container "+short(id), c.runtime.RemoveContainer,
		&runtimeapi.RemoveContainerRequest{ContainerId: id})
	return unlessGone(err)
}

// RemoveSandbox removes a sandbox with all its containers; the logs stay. One
// that runs is killed without a word: check before. It is no error when the
// sandbox is gone.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, max(c.timeout, removeTimeout), "remove sandbox "+short(id), c.runtime.RemovePodSandbox,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return unlessGone(err)
}

// wholeSeconds rounds a grace period up, so that a short one does not become a
// kill, and keeps it within what a deadline can hold.
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
