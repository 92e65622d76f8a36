package reclaim

import (
	"context"
	"time"

	"github.com/criguard/criguard/cri"
)

// Lister lists what the runtime has, from its memory.
type Lister interface {
	Containers(ctx context.Context) ([]cri.Container, error)
	Sandboxes(ctx context.Context) ([]cri.Sandbox, error)
}

// Stopper stops what runs. To stop what has ended or is gone is no error, or
// cri.ErrGone. Both return soon after their context ends.
type Stopper interface {
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	StopSandbox(ctx context.Context, id string) error
}

// ContainerStore looks containers up and removes them.
type ContainerStore interface {
	ContainerStatus(ctx context.Context, id string) (cri.ContainerDetail, error)
	RemoveContainer(ctx context.Context, id string) error
}

// SandboxStore looks sandboxes up and removes them. Only SandboxDetail asks the
// sandbox's shim and may hang.
type SandboxStore interface {
	Sandbox(ctx context.Context, id string) (cri.Sandbox, error)
	SandboxDetail(ctx context.Context, id string) (cri.SandboxDetail, error)
	RemoveSandbox(ctx context.Context, id string) error
}

// ImageStore lists and removes images, and tells the configured sandbox image.
type ImageStore interface {
	Images(ctx context.Context) ([]cri.Image, error)
	RemoveImage(ctx context.Context, ref string) error
	Status(ctx context.Context) (cri.Status, error)
}

// Runtime is all that collecting needs of a container runtime; *cri.Client is one.
type Runtime interface {
	Lister
	Stopper
	ContainerStore
	SandboxStore
	ImageStore
}

// Cgroups is all that stopping needs of the kernel. The paths are relative to the
// hierarchy. A cgroup that is gone is not populated; an error that says so wraps
// fs.ErrNotExist.
type Cgroups interface {
	// Kill sends SIGKILL to every process of a cgroup, until none is left or they
	// do not end. It returns how many it sent.
	Kill(rel string) (int, error)
	// Populated reports whether a process is in the cgroup or below it.
	Populated(rel string) (bool, error)
}
