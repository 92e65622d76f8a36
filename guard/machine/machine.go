// Package machine is what the service uses of its machine besides files: the clock, the kernel's wake-ups, kills, the size
// of filesystems, locks and sockets. Whatever waits outside of Go's own timers and channels is here, so that a test can put
// a simulated machine in its place and let time pass as fast as it can; see test/world.
package machine

import (
	"net"
	"runtime/debug"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cgroup/mountinfo"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/node"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/reclaim"
)

// Machine is a machine to guard.
type Machine struct {
	BootTime   func() time.Duration // since boot, suspend included
	NewWaker   func(cgroup.Layout) (node.Waker, error)
	Cgroups    func(cgroup.Layout) reclaim.Cgroups     // kills processes
	Statfs     func(path string) (cgroup.Space, error) // of the filesystem that holds a path
	Tree       disk.MeasureTree                        // of the files below a directory; nil = of those that are there
	Mounts     func() ([]mountinfo.Mount, error)       // of this process; nil = those that it has
	LockMemory func() error                            // keeps the process's memory from being swapped
	FreeMemory func()                                  // returns the process's unused memory to the kernel
	Processors func(n int) (before int)                // lets goroutines use n processors at a time
	// LockNode takes the locks of a node. See [rundir.Dir.LockNode].
	LockNode func(dir rundir.Dir, names ...string) (release func(), missed []string, err error)
	Listen   func(rundir.Dir) (net.Listener, error) // on the control socket
	Runtime  cri.Network
	// Linger returns when all else has happened that happens at this time. In virtual time, that is much, and what a pass sees of it
	// would be chance. nil = nothing, as on a real machine.
	Linger func()
}

// Real returns the machine that the process runs on.
func Real() Machine {
	return Machine{
		BootTime:   cgroup.BootTime,
		NewWaker:   node.NewWaker,
		Cgroups:    func(l cgroup.Layout) reclaim.Cgroups { return l },
		Statfs:     disk.Statfs,
		LockMemory: cgroup.LockMemory,
		FreeMemory: debug.FreeOSMemory,
		Processors: useProcessors,
		LockNode:   rundir.Dir.LockNode,
		Listen:     control.Listen,
	}
}
