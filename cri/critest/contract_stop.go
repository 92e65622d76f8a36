package critest

import (
	"errors"
	"slices"
	"time"

	"github.com/criguard/criguard/cri"
)

func (c *contract) stopContainer() {
	pod := c.runPod(ContainerSpec{Name: "polite"}, ContainerSpec{Name: "deaf", IgnoreTERM: true}, ContainerSpec{Name: "victim"})
	took, err := timed(func() error { return c.client.StopContainer(c.Context(), pod.Containers[0].ID, hangs) })
	c.check(err)
	if took >= hangs {
		c.Errorf("a container that heeds SIGTERM took %s, all of its grace", took)
	}
	took, err = timed(func() error { return c.client.StopContainer(c.Context(), pod.Containers[1].ID, time.Second) })
	c.check(err)
	if took < 900*time.Millisecond || took > hangs {
		c.Errorf("a container that ignores SIGTERM took %s, of 1s grace", took)
	}
	took, err = timed(func() error { return c.client.StopContainer(c.Context(), pod.Containers[2].ID, 0) })
	c.check(err)
	if took > hangs {
		c.Errorf("a kill took %s", took)
	}
	for _, ctr := range pod.Containers {
		c.wantState(ctr.ID, cri.Exited)
		c.check(c.client.StopContainer(c.Context(), ctr.ID, time.Second)) // again
	}
	if !c.ready(pod.ID) {
		c.Error("the sandbox is not ready without containers")
	}
}

// stopEscalates: a second stop with a shorter grace ends the wait of the first.
func (c *contract) stopEscalates() {
	id := c.runPod(ContainerSpec{Name: "deaf", IgnoreTERM: true}).Containers[0].ID
	patient := async(func() error { return c.client.StopContainer(c.Context(), id, 60*time.Second) })
	c.check(c.client.StopContainer(c.Context(), id, time.Second))
	c.wantState(id, cri.Exited)
	select {
	case err := <-patient:
		c.check(err)
	case <-time.After(hangs):
		c.Error("the longer stop waits on")
	}
}

// stopCutShort: if a call ends before the grace period does, a later one can still stop the container.
func (c *contract) stopCutShort() {
	id := c.runPod(ContainerSpec{Name: "deaf", IgnoreTERM: true}).Containers[0].ID
	err := c.client.StopContainer(c.deadline(500*time.Millisecond), id, 30*time.Second)
	if !errors.Is(err, cri.ErrTimeout) {
		c.Errorf("cut short: %v, want ErrTimeout", err)
	}
	c.wantState(id, cri.Running)
	c.check(c.client.StopContainer(c.Context(), id, 0))
	c.wantState(id, cri.Exited)
}

func (c *contract) stopSandbox() {
	pod := c.runPod(ContainerSpec{Name: "app"}, ContainerSpec{Name: "deaf", IgnoreTERM: true})
	c.check(c.client.StopSandbox(c.Context(), pod.ID))
	for _, ctr := range pod.Containers {
		c.wantState(ctr.ID, cri.Exited)
	}
	if c.ready(pod.ID) {
		c.Error("the sandbox is ready after its stop")
	}
	c.check(c.client.StopSandbox(c.Context(), pod.ID)) // again
}

func (c *contract) remove() {
	pod := c.runPod(ContainerSpec{Name: "app"}, ContainerSpec{Name: "exited", State: cri.Exited})
	exited := pod.Containers[1].ID
	c.check(c.client.RemoveContainer(c.Context(), exited))
	list, err := c.client.Containers(c.Context())
	c.check(err)
	if _, ok := ids(list, containerID)[exited]; ok {
		c.Error("a removed container is listed")
	}
	c.wantState(pod.Containers[0].ID, cri.Running)

	c.check(c.client.StopSandbox(c.Context(), pod.ID))
	c.check(c.client.RemoveSandbox(c.Context(), pod.ID))
	sandboxes, err := c.client.Sandboxes(c.Context())
	c.check(err)
	if _, ok := ids(sandboxes, sandboxID)[pod.ID]; ok {
		c.Error("a removed sandbox is listed")
	}
	list, err = c.client.Containers(c.Context())
	c.check(err)
	if slices.ContainsFunc(list, func(ctr cri.Container) bool { return ctr.SandboxID == pod.ID }) {
		c.Error("a removed sandbox has containers")
	}
}

// killedOutside: the runtime notices the exit. The sandbox stops being ready when it is stopped, at the
// latest.
func (c *contract) killedOutside() {
	pod := c.runPod(ContainerSpec{Name: "app"})
	id := pod.Containers[0].ID
	c.target.Kill(c.T, pod.Containers[0])
	c.eventually("the runtime sees the exit", func() bool { return c.state(id) == cri.Exited })
	c.check(c.client.StopSandbox(c.Context(), pod.ID))
	if c.ready(pod.ID) {
		c.Error("the sandbox is ready after its stop")
	}
}

// frozenShim: a sandbox with a hung shim affects nothing else. Even when its processes are dead, the
// runtime does not see a change.
func (c *contract) frozenShim() {
	frozen := c.runPod(ContainerSpec{Name: "app"})
	other := c.runPod(ContainerSpec{Name: "app"})
	thaw := c.target.FreezeShim(c.T, frozen.ID)
	defer thaw()

	quick := c.deadline(hangs)
	_, err := c.client.Sandboxes(quick)
	c.check(err)
	_, err = c.client.Containers(quick)
	c.check(err)
	_, err = c.client.Sandbox(quick, frozen.ID)
	c.check(err)
	_, err = c.client.ContainerDetail(quick, frozen.Containers[0].ID)
	c.check(err)
	_, _, err = c.client.ImageFilesystems(quick)
	c.check(err)
	_, err = c.client.WritableLayer(quick, other.Containers[0].ID)
	c.check(err)
	c.check(c.client.StopSandbox(c.deadline(hangs), other.ID))

	err = c.client.StopSandbox(c.deadline(3*time.Second), frozen.ID)
	if !errors.Is(err, cri.ErrTimeout) && !errors.Is(err, cri.ErrRefused) {
		c.Errorf("stop of the frozen sandbox: %v, want an error", err)
	}
	c.target.Kill(c.T, frozen.Containers[0])
	c.wantState(frozen.Containers[0].ID, cri.Running)
	thaw()
	c.eventually("the runtime sees the exit", func() bool { return c.state(frozen.Containers[0].ID) == cri.Exited })
	c.check(c.client.StopSandbox(c.Context(), frozen.ID))
	if c.ready(frozen.ID) {
		c.Error("the sandbox is ready after its stop")
	}
}
