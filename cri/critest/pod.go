package critest

import (
	"path"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/criguard/criguard/cri"
)

// pod is a sandbox. Server.mu guards it and its containers.
type pod struct {
	spec       PodSpec // without its containers
	server     *Server
	containers []*container
	ready      bool // as the runtime reports
	pause      bool // the pause process is alive (CRI-O needs none)
	pid        int
	frozen     chan struct{} // closed when the shim or conmon runs again; nil = it runs
	netDown    bool          // CRI-O: the network counts as torn down
}

// container is a container. Its true state (alive) and the runtime's view (state) differ while the shim
// is frozen.
type container struct {
	spec     ContainerSpec
	pod      *pod
	image    *image
	alive    bool
	state    cri.State
	pid      int
	started  time.Time
	finished time.Time
	exitCode int32
	sampled  layerSample   // with WithSampling
	termed   bool          // has received its SIGTERM
	exited   chan struct{} // closed when the runtime knows that it exited
}

// addContainer adds a container to a pod, in the state of its specification.
func (s *Server) addContainer(p *pod, spec ContainerSpec) Container {
	s.added.containers++
	spec = spec.fill(p.spec, s.added.containers, len(p.containers))
	c := &container{spec: spec, pod: p, image: s.imageFor(spec.Image), state: spec.State, exited: make(chan struct{})}
	switch spec.State {
	case cri.Running:
		c.alive, c.pid, c.started = true, s.newPID(), spec.CreatedAt
	case cri.Exited:
		c.started, c.finished = spec.CreatedAt, spec.Finished
		close(c.exited)
	}
	p.containers = append(p.containers, c)
	s.containers[spec.ID] = c
	s.publish(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, spec.ID, p)
	if c.alive {
		s.publish(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, spec.ID, p)
	}
	return Container{ID: spec.ID, Name: spec.Name, ImageID: c.image.id, Cgroup: c.cgroup(), LogPath: spec.LogPath}
}

// cgroup returns the path of the container's own cgroup below the hierarchy.
func (c *container) cgroup() string {
	prefix := "cri-containerd"
	if c.pod.server.traits.crio {
		prefix = "crio"
	}
	switch {
	case strings.HasSuffix(c.pod.spec.CgroupParent, ".slice"):
		return path.Join(c.pod.spec.CgroupParent, prefix+"-"+c.spec.ID+".scope")
	case prefix == "crio":
		return path.Join(c.pod.spec.CgroupParent, "crio-"+c.spec.ID)
	default:
		return path.Join(c.pod.spec.CgroupParent, c.spec.ID)
	}
}

// specPath returns the same in the form of an OCI spec.
func (c *container) specPath() string {
	parent := c.pod.spec.CgroupParent
	if !strings.HasSuffix(parent, ".slice") {
		return c.cgroup()
	}
	prefix := "cri-containerd"
	if c.pod.server.traits.crio {
		prefix = "crio"
	}
	return path.Base(parent) + ":" + prefix + ":" + c.spec.ID
}

// term sends SIGTERM, once: runtimes do not repeat it.
func (c *container) term() {
	if c.termed || c.spec.IgnoreTERM {
		return
	}
	c.termed = true
	c.end(0)
}

// kill sends SIGKILL. It returns the number of processes that it was sent to.
func (c *container) kill() int {
	if !c.alive {
		return 0
	}
	c.end(137)
	return c.spec.Processes
}

// end ends the processes by a signal. The runtime notices when none is in an uninterruptible sleep any more.
func (c *container) end(code int32) {
	if c.spec.Lingers == 0 || !c.alive {
		c.die(code)
		return
	}
	c.alive, c.exitCode = false, code
	time.AfterFunc(c.spec.Lingers, func() {
		s := c.pod.server
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.pod.frozen == nil {
			c.note()
		}
	})
}

// die ends the processes. The runtime notices unless the shim is frozen.
func (c *container) die(code int32) {
	if !c.alive {
		return
	}
	c.alive, c.exitCode = false, code
	if c.pod.frozen == nil {
		c.note()
	}
}

// note makes the runtime notice that the container exited.
func (c *container) note() {
	if c.alive || c.state != cri.Running {
		return
	}
	c.state, c.pid, c.finished = cri.Exited, 0, time.Now()
	close(c.exited)
	c.pod.server.publish(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.spec.ID, c.pod)
}

// down ends the pause process. containerd notices and reports the sandbox as not ready. CRI-O has no
// pause process and does not check.
func (p *pod) down() {
	p.pause = false
	if !p.server.traits.crio && p.frozen == nil {
		p.notReady()
	}
}

func (p *pod) notReady() {
	if p.ready {
		p.ready, p.pid = false, 0
		p.server.publish(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, p.spec.ID, p)
	}
}

// running returns the containers that run according to the runtime.
func (p *pod) running() []*container {
	var out []*container
	for _, c := range p.containers {
		if c.state == cri.Running {
			out = append(out, c)
		}
	}
	return out
}

// thaw lets the shim run again, and the runtime catches up.
func (p *pod) thaw() {
	if p.frozen == nil {
		return
	}
	close(p.frozen)
	p.frozen = nil
	for _, c := range p.containers {
		c.note()
	}
	if !p.pause && !p.server.traits.crio {
		p.notReady()
	}
}

func (s *Server) removeContainer(c *container) {
	c.die(137)
	c.alive = false
	c.note()
	c.pod.containers = slices.DeleteFunc(c.pod.containers, func(other *container) bool { return other == c })
	delete(s.containers, c.spec.ID)
	if s.deleted != nil && c.spec.WritableBytes+c.spec.WritableInodes > 0 {
		s.deleted(c.spec.ID, int64(c.spec.WritableBytes), int64(c.spec.WritableInodes))
	}
	s.publish(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.spec.ID, c.pod)
}

func (s *Server) removePod(p *pod) {
	for _, c := range slices.Clone(p.containers) {
		s.removeContainer(c)
	}
	p.pause = false
	p.notReady()
	s.pods = slices.DeleteFunc(s.pods, func(other *pod) bool { return other == p })
	s.publish(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, p.spec.ID, p)
}
