package reclaim

import (
	"context"
	"time"

	"github.com/criguard/criguard/cri"
)

// Lister lists the runtime's objects from its memory.
type Lister interface {
	Containers(ctx context.Context) ([]cri.Container, error)
	Sandboxes(ctx context.Context) ([]cri.Sandbox, error)
}

// Stopper stops containers and sandboxes. If the object has already ended or is gone, the error is nil
// or cri.ErrGone. Both methods return soon after their context ends.
type Stopper interface {
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	StopSandbox(ctx context.Context, id string) error
}

// ContainerStore looks up and removes containers.
type ContainerStore interface {
	ContainerStatus(ctx context.Context, id string) (cri.ContainerDetail, error)
	RemoveContainer(ctx context.Context, id string) error
}

// SandboxStore looks up and removes sandboxes. Only SandboxDetail needs the sandbox's shim and may
// hang. StopDeadSandbox is StopSandbox for a sandbox in which nothing runs: it waits minutes for the
// network plugin.
type SandboxStore interface {
	Sandbox(ctx context.Context, id string) (cri.Sandbox, error)
	SandboxDetail(ctx context.Context, id string) (cri.SandboxDetail, error)
	StopDeadSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
}

// ImageStore lists and removes images, and returns the configured sandbox image and the runtime's
// version.
type ImageStore interface {
	Images(ctx context.Context) ([]cri.Image, error)
	RemoveImage(ctx context.Context, ref string) error
	Status(ctx context.Context) (cri.Status, error)
	Version(ctx context.Context) (cri.Version, error)
}

// Runtime is the part of a container runtime that a collection needs; *cri.Client implements it.
type Runtime interface {
	Lister
	Stopper
	ContainerStore
	SandboxStore
	ImageStore
}

// Cgroups is the part of the kernel that a stop needs. The paths are relative to the hierarchy. A
// cgroup that is gone is not populated; the error for it wraps fs.ErrNotExist.
type Cgroups interface {
	// Kill sends SIGKILL to every process of a cgroup, until none is left or the processes do not end.
	// It returns the number of signals.
	Kill(rel string) (int, error)
	// Populated reports whether a process is in the cgroup or below it.
	Populated(rel string) (bool, error)
	// SharedMemory returns the bytes that belong to files in memory, which outlive the processes.
	SharedMemory(rel string) (int64, error)
}
