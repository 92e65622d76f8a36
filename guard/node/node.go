package node

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/disk"
	"github.com/criguard/criguard/guard/lastgood"
	"github.com/criguard/criguard/policy"
)

// Options configures a Node.
type Options struct {
	Layout      cgroup.Layout
	Proc        cgroup.Proc
	PodsCgroup  string               // the cgroup of all pods; "" = find it
	KubeletRoot string               // the kubelet's root directory
	StallWindow time.Duration        // the window of the stall signals
	Now         func() time.Duration // the time since boot
	Disks       *disk.Watcher
	Meter       *disk.Meter
	NewWaker    func(cgroup.Layout) (Waker, error) // for Watch
}

// Waker is what wakes the loop when the kernel has news. [cgroup.Waker] documents its methods.
type Waker interface {
	Wakes() <-chan cgroup.Wake
	SetMemoryThresholds(rel string, bytes []int64) error
	AddMemoryEvents(rel string) error
	AddMounts() error
	AddStall(wake cgroup.Wake, threshold, window time.Duration) (used time.Duration, err error)
	AddDir(rel string) error
	AddTree(rel string) error
	RemoveTree(rel string)
	Changes(each func(rel string, removed bool)) (complete bool)
	Close()
}

// Node observes the node through package cgroup. The loop's goroutine calls Observe, Measure, Layout,
// Arm, Slept and Reconfigure; the lister's calls Track and Sweep; and that of a reclaim calls Measure, too.
type Node struct {
	opt      Options
	node     *cgroup.Node
	tracker  *cgroup.Tracker
	waker    Waker                  // nil = only the timer wakes the loop
	pods     atomic.Pointer[string] // the pods cgroup; nil = unknown
	capacity atomic.Int64           // see Capacity
	cpus     atomic.Int64           // online
	near     atomic.Bool            // see Near
	noSwap   atomic.Bool            // see SwapUnaccounted
	seen     atomic.Bool            // the cgroup of a listed pod existed, see canSeePods

	podsPIDs atomic.Bool // pid.available refers to the pods cgroup, whose limit is closer than the node's

	stalls     [2]cgroup.StallWindow // memory, io
	reasons    [policy.SignalCount]error
	last       struct{ root, pods cgroup.Memory } // for the kernel's memory thresholds, see Arm
	podsMemory policy.Amount                      // working set of the pods cgroup at the last Observe
	swapTotal  int64
	swapFell   time.Duration // when swapTotal last fell; 0 = never
	enough     int64         // memory.available above this is far from every threshold; 0 = unknown

	index     podIndex
	podsInode uint64 // inode of the watched pods cgroup; only the lister uses it

	kubelets lastgood.Value[kubeletLook]

	mu    sync.Mutex          // guards the fields below
	wakes []string            // what wakes the loop besides the timer
	known map[string][]string // the cgroups of each sandbox, whose usage is added up
	found []unlisted          // pod cgroups in the last search,
	prior []unlisted          // and in the search before
	// confirmed holds the confirmed unlisted cgroups and since when: a listing that began later did not include them.
	confirmed map[string]unlisted
}

// Open opens the kernel's files.
func Open(opt Options) (*Node, error) {
	pods := opt.PodsCgroup
	if pods == "" {
		pods, _, _ = opt.Layout.FindPods() // none = no kubelet here, or not yet
	}
	reader, err := cgroup.OpenNode(opt.Layout, pods)
	if err != nil {
		return nil, err
	}
	n := &Node{opt: opt, node: reader, tracker: cgroup.NewTracker(opt.Layout)}
	if pods != "" {
		n.pods.Store(&pods)
	}
	if info, err := reader.MemInfo(); err == nil {
		m, _ := reader.PodsMemory() // the first listing may come before the first Observe
		n.capacity.Store(max(info.Total, m.Limit))
	}
	n.countCPUs()
	return n, nil
}

// countCPUs counts the online CPUs, which may change while a machine runs.
func (n *Node) countCPUs() {
	cpus, err := n.opt.Layout.OnlineCPUs()
	if err != nil {
		cpus = runtime.NumCPU()
	}
	n.cpus.Store(int64(cpus))
}

// CPUs returns how many CPUs the machine has online, as of the last listing.
func (n *Node) CPUs() int { return int(n.cpus.Load()) }

// Close releases the kernel's files. It does not close the disk watcher.
func (n *Node) Close() {
	if n.waker != nil {
		n.waker.Close()
	}
	n.tracker.Close()
	n.node.Close()
}

// Reconfigure changes the window of the stall signals. Until the next pass it is unknown which level is far
// from every threshold, because these may have changed too.
func (n *Node) Reconfigure(stallWindow time.Duration) { n.opt.StallWindow, n.enough = stallWindow, 0 }

// Now returns the time since boot.
func (n *Node) Now() time.Duration { return n.opt.Now() }

// Capacity returns the node's memory in bytes as a kubelet knows it, 0 if it is unknown.
func (n *Node) Capacity() int64 { return n.capacity.Load() }

// Near reports whether a signal other than a disk's meets its threshold or is near it.
func (n *Node) Near() bool { return n.near.Load() }

// SwapUnaccounted reports whether the kernel does not account the pods' swap.
func (n *Node) SwapUnaccounted() bool { return n.noSwap.Load() }

// Layout returns which filesystems share a device.
func (n *Node) Layout() policy.Layout { return n.opt.Disks.Layout() }

// LayersInMemory reports whether what containers write to their layers is memory.
func (n *Node) LayersInMemory() bool { return n.opt.Disks.LayersInMemory() }

// Cgroup returns the cgroup version.
func (n *Node) Cgroup() string { return n.opt.Layout.Version.String() }
