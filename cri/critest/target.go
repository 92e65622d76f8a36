package critest

import (
	"testing"

	"github.com/criguard/criguard/cri"
)

// Target is a runtime that Contract can run against. It supports these fields of a PodSpec: Name,
// Namespace, UID, Labels and Annotations, and of its containers Name, State (Running, Exited or
// Created), Grace, MemoryLimit and IgnoreTERM. Contract leaves the others zero. A container that does
// not ignore SIGTERM exits within a second. The cgroup paths are below the hierarchy; Contract does not
// check an empty one.
type Target interface {
	Endpoint() string
	// RunPod runs a pod and removes it when the test ends, if it still exists.
	RunPod(tb testing.TB, spec PodSpec) Pod
	// AddImage stores an unused image with this name.
	AddImage(tb testing.TB, ref string)
	// Kill sends SIGKILL to a running container's processes from outside.
	Kill(tb testing.TB, c Container)
	// FreezeShim stops the process between the runtime and a sandbox until thaw. thaw may be called
	// twice.
	FreezeShim(tb testing.TB, podID string) (thaw func())
}

// Target returns the server as a target of Contract.
func (s *Server) Target() Target { return target{s} }

type target struct{ s *Server }

func (t target) Endpoint() string { return t.s.Endpoint() }

func (t target) RunPod(tb testing.TB, spec PodSpec) Pod {
	pod := t.s.AddPod(spec)
	tb.Cleanup(func() { t.s.Forget(pod.ID) })
	return pod
}

func (t target) AddImage(_ testing.TB, ref string) { t.s.AddImage(ImageSpec{Tags: []string{ref}}) }

func (t target) Kill(_ testing.TB, c Container) { t.s.Kill(c.ID) }

func (t target) FreezeShim(_ testing.TB, podID string) func() { return t.s.FreezeShim(podID) }

// ids maps the objects of a listing by id.
func ids[T any](list []T, id func(T) string) map[string]T {
	out := make(map[string]T, len(list))
	for _, v := range list {
		out[id(v)] = v
	}
	return out
}

func containerID(c cri.Container) string { return c.ID }
func sandboxID(s cri.Sandbox) string     { return s.ID }
func imageID(i cri.Image) string         { return i.ID }
