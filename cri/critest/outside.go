package critest

import (
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/criguard/criguard/cri"
)

// Changes to pods that the runtime does not make.

// Kill sends SIGKILL to the processes of a container from outside, and returns their number. The
// runtime notices the exit at once, unless the shim is frozen.
func (s *Server) Kill(containerID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[containerID]; c != nil {
		return c.kill()
	}
	return 0
}

// Exit makes a container exit by itself.
func (s *Server) Exit(containerID string, code int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[containerID]; c != nil {
		c.die(code)
	}
}

// Write lets a container write to its writable layer.
func (s *Server) Write(containerID string, bytes, inodes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[containerID]; c != nil {
		c.sample()
		c.spec.WritableBytes += uint64(bytes)
		c.spec.WritableInodes += uint64(inodes)
	}
}

// Written returns what a container has written to its writable layer, whatever the runtime reports.
func (s *Server) Written(containerID string) (bytes, inodes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[containerID]; c != nil {
		bytes, inodes = int64(c.spec.WritableBytes), int64(c.spec.WritableInodes)
	}
	return bytes, inodes
}

// DiskUse returns the bytes of all images and writable layers, and the inodes of these layers.
func (s *Server) DiskUse() (bytes, inodes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, img := range s.images {
		bytes += img.size
	}
	for _, c := range s.containers {
		bytes, inodes = bytes+int64(c.spec.WritableBytes), inodes+int64(c.spec.WritableInodes)
	}
	return bytes, inodes
}

// Alive reports whether a container has processes, whatever the runtime reports.
func (s *Server) Alive(containerID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[containerID]
	return c != nil && c.alive
}

// FreezeShim stops the shim of a sandbox (CRI-O: the conmon of its containers), like SIGSTOP. Calls
// that need the shim hang, and the runtime misses exits, until thaw.
func (s *Server) FreezeShim(podID string) (thaw func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pod(podID)
	if p == nil {
		return func() {}
	}
	if p.frozen == nil {
		p.frozen = make(chan struct{})
	}
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.thaw()
	})
}

// BreakNetwork makes the network plugin fail when a sandbox is stopped, until repair.
func (s *Server) BreakNetwork() (repair func()) {
	s.setNetwork(true)
	return func() { s.setNetwork(false) }
}

func (s *Server) setNetwork(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cniBroken = broken
}

// Cgroups is the kernel's view of the pods, by the cgroup paths that AddPod returns. The runtime
// removes a container's cgroup when it notices the exit.
type Cgroups struct{ s *Server }

// Cgroups returns the kernel's view of the pods.
func (s *Server) Cgroups() Cgroups { return Cgroups{s} }

// Kill sends SIGKILL to every process in a cgroup and below, and returns their number. The error wraps
// fs.ErrNotExist if there is no such cgroup.
func (g Cgroups) Kill(rel string) (int, error) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	pods, containers, found := g.s.below(rel)
	if !found {
		return 0, fmt.Errorf("kill cgroup %s: %w", rel, fs.ErrNotExist)
	}
	n := 0
	for _, c := range containers {
		n += c.kill()
	}
	for _, p := range pods {
		if p.pause && !g.s.traits.crio {
			n++
		}
		p.down()
	}
	return n, nil
}

// Populated reports whether a cgroup or one below it has processes. The error wraps fs.ErrNotExist if
// there is no such cgroup.
func (g Cgroups) Populated(rel string) (bool, error) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	pods, containers, found := g.s.below(rel)
	if !found {
		return false, fmt.Errorf("read cgroup %s: %w", rel, fs.ErrNotExist)
	}
	for _, c := range containers {
		if c.alive {
			return true, nil
		}
	}
	for _, p := range pods {
		if p.pause && !g.s.traits.crio {
			return true, nil
		}
	}
	return false, nil
}

// SharedMemory returns 0 for every cgroup: the fake pods write no files in memory.
func (g Cgroups) SharedMemory(rel string) (int64, error) {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	if _, _, found := g.s.below(rel); !found {
		return 0, fmt.Errorf("read cgroup %s: %w", rel, fs.ErrNotExist)
	}
	return 0, nil
}

// below finds the pods and containers whose cgroups are rel or lie below it.
func (s *Server) below(rel string) (pods []*pod, containers []*container, found bool) {
	rel = "/" + strings.Trim(rel, "/")
	in := func(cgroup string) bool { return cgroup == rel || strings.HasPrefix(cgroup, rel+"/") }
	for _, p := range s.pods {
		if in(p.spec.CgroupParent) {
			pods, found = append(pods, p), true
		}
		for _, c := range p.containers {
			if in(c.cgroup()) && c.state == cri.Running {
				containers, found = append(containers, c), true
			}
		}
	}
	return pods, containers, found
}
