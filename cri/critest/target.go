package critest

import (
	"testing"

	"github.com/criguard/criguard/cri"
)

// Target is a runtime that Contract can be run against. Of a PodSpec it honours
// Name, Namespace, UID, Labels and Annotations, and of the containers Name, State
// (Running, Exited or Created), Grace, MemoryLimit and IgnoreTERM; Contract leaves
// the rest zero. A container that does not ignore SIGTERM ends within a second of
// it. The cgroup paths it returns are below the hierarchy; an empty one is not
// checked.
type Target interface {
	Endpoint() string
	// RunPod runs a pod until the test ends, and removes it then if it is still
	// there.
	RunPod(tb testing.TB, spec PodSpec) Pod
	// AddImage stores an image of this name that nothing uses.
	AddImage(tb testing.TB, ref string)
	// Kill sends SIGKILL to a running container's processes from outside.
	Kill(tb testing.TB, c Container)
	// FreezeShim stops the process that stands between the runtime and a sandbox,
	// until thaw; thaw may be called twice.
	FreezeShim(tb testing.TB, podID string) (thaw func())
}

// Target offers the server to Contract.
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

// ids collects what a listing names.
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
