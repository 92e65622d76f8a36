package node

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

var errAbsent = errors.New("the node does not have it")

// ErrNotYet is the reason of a stall signal until a full window has passed.
var ErrNotYet = errors.New("not measured yet")

// Observe reads every signal. A signal that fails does not affect the others.
func (n *Node) Observe(obs *policy.Observations) {
	now := n.Now()
	n.node.SetPods(n.PodsCgroup())
	n.observeMemory(obs, now)
	n.observePIDs(obs, now)
	n.observeStalls(obs, now)
	n.opt.Disks.Observe(obs, &n.reasons, now)
}

// fail marks a signal as absent if the node does not have it, otherwise as failed.
func (n *Node) fail(obs *policy.Observations, s policy.Signal, err error, now time.Duration) {
	n.reasons[s] = err
	obs[s] = policy.Observation{At: now, Status: policy.Failed}
	if errors.Is(err, cgroup.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
		obs[s].Status = policy.Absent
	}
}

func (n *Node) observeMemory(obs *policy.Observations, now time.Duration) {
	info, err := n.node.MemInfo()
	if err != nil {
		for s := range policy.SignalCount {
			if s.IsMemoryAmount() {
				n.fail(obs, s, err, now)
			}
		}
		return
	}
	if m, err := n.node.Memory(info, n.enough); err != nil {
		n.fail(obs, policy.MemoryAvailable, err, now)
	} else {
		n.last.root = m
		obs[policy.MemoryAvailable] = policy.ObserveUsed(info.Total, m.WorkingSet(), now)
	}
	obs[policy.MeminfoAvailable] = policy.ObserveSpace(info.Available, info.Total, now)
	n.observeSwap(obs, info, now)
	m, err := n.node.PodsMemory()
	n.capacity.Store(max(info.Total, m.Limit)) // if a balloon takes memory, a kubelet goes on with what the node had at its start
	n.podsMemory = policy.Amount{Value: m.WorkingSet(), Known: err == nil}
	switch {
	case err != nil:
		n.fail(obs, policy.AllocatableMemoryAvailable, err, now)
	case m.Limit <= 0 || m.Limit >= info.Total:
		// Without a limit below the node's memory, memory.available already covers the pods cgroup.
		obs[policy.AllocatableMemoryAvailable] = policy.Observation{At: now}
		n.reasons[policy.AllocatableMemoryAvailable] = errors.New("the pods cgroup has no memory limit")
	default:
		n.last.pods = m
		obs[policy.AllocatableMemoryAvailable] = policy.ObserveUsed(m.Limit, m.WorkingSet(), now)
	}
}

// observeSwap reads the swap, unless a device is being switched off: the kernel then counts only the pages that are still in it, and none
// as free, while they come back to memory. Nothing else makes the total fall.
func (n *Node) observeSwap(obs *policy.Observations, info cgroup.MemInfo, now time.Duration) {
	total := max(info.SwapTotal, 0) // it may be missing
	if total < n.swapTotal {
		n.swapFell = now
	}
	if n.swapTotal = total; n.swapFell > 0 && now-n.swapFell < swapoffPause {
		obs[policy.SwapAvailable] = policy.Observation{At: now}
		n.reasons[policy.SwapAvailable] = errors.New("swap is being switched off, or was a moment ago")
		return
	}
	obs[policy.SwapAvailable], n.reasons[policy.SwapAvailable] = policy.ObserveSpace(info.SwapFree, info.SwapTotal, now), nil
}

// swapoffPause is how long the total of the swap must not have fallen for its reading to count. A slow disk gives back its pages in lumps,
// and what comes back to memory is no leak for as long as a rate may be measured over.
const swapoffPause = 10 * time.Second

func (n *Node) observePIDs(obs *policy.Observations, now time.Duration) {
	p, err := n.node.Pids()
	if err != nil {
		n.fail(obs, policy.PIDAvailable, err, now)
		return
	}
	n.podsPIDs.Store(p.OfPods)
	obs[policy.PIDAvailable] = policy.ObserveUsed(p.Max, p.Current, now)
}

func (n *Node) observeStalls(obs *policy.Observations, now time.Duration) {
	read := []func() (cgroup.Stall, error){n.node.MemoryStall, n.node.IOStall}
	for i, s := range []policy.Signal{policy.MemoryStall, policy.IOStall} {
		st, err := read[i]()
		if err != nil {
			n.fail(obs, s, err, now)
			continue
		}
		stalled, over, ok := n.stalls[i].Add(now, st.Full, n.opt.StallWindow)
		if !ok {
			obs[s] = policy.Observation{At: now}
			n.reasons[s] = ErrNotYet
			continue
		}
		obs[s] = policy.ObserveStall(stalled, over, now)
	}
}

// AwaitStalls waits until the first reading of the stall signals is a window old, and reports whether it is. It waits for
// nothing if ctx ends before.
func (n *Node) AwaitStalls(ctx context.Context) bool {
	if end, limited := ctx.Deadline(); limited && time.Until(end) < n.opt.StallWindow {
		return false
	}
	select {
	case <-time.After(n.opt.StallWindow):
		return true
	case <-ctx.Done():
		return false
	}
}

// Slept keeps a time in which the machine slept out of the windows of the stall signals.
func (n *Node) Slept(d time.Duration) {
	for i := range n.stalls {
		n.stalls[i].Slept(d)
	}
}

// ForgetStalls makes the stall signals unknown until a whole window has been observed.
func (n *Node) ForgetStalls() { n.stalls = [len(n.stalls)]cgroup.StallWindow{} }

// Reason returns why a signal is not observed.
func (n *Node) Reason(s policy.Signal) error { return cmp.Or(n.reasons[s], errAbsent) }

// Arm sets the kernel's memory thresholds (cgroup v1) for the current usage, and records whether a signal is
// near its threshold, so that pods are listed more often. cameNear reports whether one has just come near.
// Disks do not count here: a stop for a disk asks the runtime what each pod uses anyway. The further they are from their
// thresholds, the less often they are read.
func (n *Node) Arm(ts []policy.Threshold, obs *policy.Observations) (cameNear bool) {
	var root, pods []int64
	near, enough, age := false, int64(0), maxDiskAge
	for _, t := range ts {
		o := obs[t.Signal]
		if t.Signal.IsDisk() {
			age = min(age, diskAge(t, o))
		}
		if o.Status != policy.OK {
			continue
		}
		value := t.Value.Of(o.Capacity)
		near = near || !t.Signal.IsDisk() && isNear(t, o)
		switch t.Signal {
		case policy.MemoryAvailable:
			// Above this, Memory may use old page lists of the processors. They may hold an eighth of the
			// memory.
			enough = max(enough, 2*t.Target(o.Capacity)+o.Capacity/8)
			if l, ok := policy.TriggerLevel(o.Capacity, value, n.last.root.Usage, n.last.root.WorkingSet()); ok {
				root = append(root, max(l-n.last.root.Uncharged, 0))
			}
		case policy.AllocatableMemoryAvailable:
			if l, ok := policy.TriggerLevel(o.Capacity, value, n.last.pods.Usage, n.last.pods.WorkingSet()); ok {
				pods = append(pods, l)
			}
		}
	}
	cameNear = !n.near.Swap(near) && near
	n.enough = enough
	n.opt.Disks.SetMaxAge(age)
	if n.waker == nil || n.opt.Layout.Version == cgroup.V2 {
		return cameNear
	}
	// The timer covers thresholds that cannot be set.
	_ = n.waker.SetMemoryThresholds("/", root)
	if rel := n.PodsCgroup(); rel != "" {
		_ = n.waker.SetMemoryThresholds(rel, pods)
	}
	return cameNear
}

// The fastest fills of a disk to reckon with, per second: an NVMe drive's, and the creation of files in memory. Each reading
// wakes up several threads, so disks are not read with every pass.
const (
	fastestBytes  = 4 << 30
	fastestInodes = 1 << 20
	maxDiskAge    = 5 * time.Second
)

// diskAge returns how old a reading of a disk may be: half the time in which the fastest fill could use up the headroom
// above a threshold. It is 0 near the threshold, and while the disk cannot be read.
func diskAge(t policy.Threshold, o policy.Observation) time.Duration {
	switch {
	case o.Status == policy.Absent:
		return maxDiskAge
	case o.Status != policy.OK || isNear(t, o):
		return 0
	}
	rate := float64(fastestBytes)
	if t.Signal.Resource() == policy.ResourceInodes {
		rate = fastestInodes
	}
	seconds := float64(o.Available-t.Target(o.Capacity)) / (2 * rate)
	return time.Duration(min(seconds, maxDiskAge.Seconds()) * float64(time.Second))
}

// isNear reports whether a signal meets its threshold or is near it: the headroom above the target is less
// than the target and less than a tenth of the capacity. Without that tenth, a threshold of half the capacity
// would always be near. A stall rises from zero suddenly, so it is near from half its threshold on.
func isNear(t policy.Threshold, o policy.Observation) bool {
	target := t.Target(o.Capacity)
	if t.Signal.IsStall() {
		return 2*(o.Capacity-o.Available) > o.Capacity-target
	}
	return o.Available-target < min(target, o.Capacity/10)
}
