package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/policy"
)

// nodeKernel observes the node through package cgroup. Observe, Measure, Layout
// and Arm belong to the loop's goroutine; Track and setFilesystems come from the
// lister's.
type nodeKernel struct {
	layout  cgroup.Layout
	node    *cgroup.Node
	tracker *cgroup.Tracker
	waker   *cgroup.Waker          // nil = nothing wakes but the timer
	pods    atomic.Pointer[string] // the pods cgroup; nil = not known
	window  atomic.Int64
	total   atomic.Int64 // MemTotal, bytes
	near    atomic.Bool  // a threshold is met or near: list more often
	noSwap  atomic.Bool  // the kernel does not account what pods have in swap

	disks   *diskReader
	meter   *diskMeter
	stalls  [2]cgroup.StallWindow // memory, io
	grow    growth
	reasons [policy.SignalCount]error
	last    struct{ root, pods cgroup.Memory } // for the trigger levels
	enough  int64                              // memory.available that is far from every threshold; 0 = none is

	podsInode uint64 // of the pods cgroup that is watched; the lister's
	podsPIDs  bool   // pid.available is about the pods cgroup, whose limit is nearer than the node's

	mu    sync.Mutex          // guards what follows
	wakes []string            // what wakes the loop beside the timer
	known map[string][]string // cgroups to add up, by sandbox
	found []string            // pod cgroups that were strangers when that was asked last,
	prior []string            // and the time before
	// outlived are strangers that the runtime, asked afresh, did not list, and when that was.
	outlived map[string]time.Duration
}

// Now is CLOCK_BOOTTIME.
func (k *nodeKernel) Now() time.Duration { return cgroup.BootTime() }

// Layout tells how the filesystems share devices.
func (k *nodeKernel) Layout() policy.Layout { return k.disks.layout() }

// Observe reads every signal. Each is read by itself: one that fails leaves the
// others alone.
func (k *nodeKernel) Observe(obs *policy.Observations) {
	now := k.Now()
	k.node.SetPods(k.podsCgroup())
	k.observeMemory(obs, now)
	k.observePIDs(obs, now)
	k.observeStalls(obs, now)
	k.disks.observe(obs, &k.reasons, now)
}

// fail marks a signal: absent where the node does not have it, failed otherwise.
func (k *nodeKernel) fail(obs *policy.Observations, s policy.Signal, err error, now time.Duration) {
	k.reasons[s] = err
	obs[s] = policy.Observation{At: now, Status: policy.Failed}
	if errors.Is(err, cgroup.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
		obs[s].Status = policy.Absent
	}
}

func (k *nodeKernel) observeMemory(obs *policy.Observations, now time.Duration) {
	info, err := k.node.MemInfo()
	if err != nil {
		for _, s := range []policy.Signal{policy.MemoryAvailable, policy.MeminfoAvailable, policy.SwapAvailable, policy.AllocatableMemoryAvailable} {
			k.fail(obs, s, err, now)
		}
		return
	}
	k.total.Store(info.Total)
	if m, err := k.node.Memory(info, k.enough); err != nil {
		k.fail(obs, policy.MemoryAvailable, err, now)
	} else {
		k.last.root = m
		obs[policy.MemoryAvailable] = policy.ObserveMemory(info.Total, m.WorkingSet(), now)
	}
	obs[policy.MeminfoAvailable] = policy.ObserveSpace(info.Available, info.Total, now)
	obs[policy.SwapAvailable] = policy.ObserveSpace(info.SwapFree, info.SwapTotal, now)
	switch m, err := k.node.PodsMemory(); {
	case err != nil:
		k.fail(obs, policy.AllocatableMemoryAvailable, err, now)
	case m.Limit <= 0 || m.Limit >= info.Total:
		// A pods cgroup without a limit of its own is the node: memory.available.
		obs[policy.AllocatableMemoryAvailable] = policy.Observation{At: now}
		k.reasons[policy.AllocatableMemoryAvailable] = errors.New("the pods cgroup has no memory limit")
	default:
		k.last.pods = m
		obs[policy.AllocatableMemoryAvailable] = policy.ObserveMemory(m.Limit, m.WorkingSet(), now)
	}
}

func (k *nodeKernel) observePIDs(obs *policy.Observations, now time.Duration) {
	p, err := k.node.Pids()
	if err != nil {
		k.fail(obs, policy.PIDAvailable, err, now)
		return
	}
	k.podsPIDs = p.OfPods
	obs[policy.PIDAvailable] = policy.ObservePIDs(p.Max, p.Current, now)
}

func (k *nodeKernel) observeStalls(obs *policy.Observations, now time.Duration) {
	read := []func() (cgroup.Stall, error){k.node.MemoryStall, k.node.IOStall}
	for i, s := range []policy.Signal{policy.MemoryStall, policy.IOStall} {
		st, err := read[i]()
		if err != nil {
			k.fail(obs, s, err, now)
			continue
		}
		window := time.Duration(k.window.Load())
		stalled, over, ok := k.stalls[i].Add(now, st.Full, window)
		if !ok {
			obs[s] = policy.Observation{At: now} // no window has passed yet
			continue
		}
		obs[s] = policy.ObserveStall(stalled, over, now)
	}
}

// Reason says why a signal is not observed.
func (k *nodeKernel) Reason(s policy.Signal) string {
	if err := k.reasons[s]; err != nil {
		return err.Error()
	}
	return "the node does not have it"
}

// Track keeps descriptors open for the pods' cgroups, so that their usage is read
// without opening anything.
func (k *nodeKernel) Track(pods []Pod) {
	k.followPods(pods)
	dirs := make(map[string]string, len(pods))
	known := make(map[string][]string, len(pods))
	for i := range pods {
		p := &pods[i]
		if len(p.Containers) == 0 {
			known[p.ID] = []string{} // nothing runs in it: it uses nothing
			continue
		}
		if p.Cgroup != "" {
			dirs[p.Cgroup] = p.Cgroup
			known[p.ID] = []string{p.Cgroup}
			continue
		}
		for _, c := range p.Containers {
			if c.Cgroup != "" {
				dirs[c.Cgroup] = c.Cgroup
				known[p.ID] = append(known[p.ID], c.Cgroup)
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known = known
	k.tracker.Sync(dirs)
	k.grow.forget(func(id string) bool { _, ok := known[id]; return ok })
	unaccounted := false
	for id := range known {
		// A sample now, so that the growth of a pod is known when it is asked for.
		u := k.usage(id)
		k.grow.rate(id, u.memory, k.Now())
		unaccounted = unaccounted || u.memory.Known && !u.swap.Known
	}
	k.noSwap.Store(unaccounted)
}

// Measure reads what each pod uses: memory, swap and tasks from its cgroup, the disks
// from the last measurement, and of what the pods cgroup limits nothing where the pod
// is not in there. Strangers are pod cgroups that no candidate has, and, of the
// disks, pods that were not measured: they may use anything.
func (k *nodeKernel) Measure(cs []policy.Candidate, pods []Pod, s policy.Signal) (largest int64, strangers bool) {
	now, apart := k.Now(), k.ofPodsCgroup(s)
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range cs {
		c := &cs[i]
		u := k.usage(c.ID)
		c.Memory, c.Swap, c.PIDs = u.memory, u.swap, u.pids
		c.Growth = k.grow.rate(c.ID, c.Memory, now)
		if apart && k.outside(c.ID) {
			c.Memory, c.PIDs = policy.Known(0), policy.Known(0)
		}
		r := s.Resource()
		c.Uncounted = u.read && (r == policy.ResourceMemory && !c.Memory.Known || r == policy.ResourcePIDs && !c.PIDs.Known)
		if d, ok := k.meter.usage(c.ID); ok {
			c.Disk, c.Inodes = d.bytes, d.inodes
		}
	}
	if s.IsDisk() {
		return k.meter.stranger(pods)
	}
	return k.strangers(pods, s)
}

// podUsage is what the cgroups of a pod use: bytes, bytes and tasks.
// What is not known though they could be read is what the kernel does not count.
type podUsage struct {
	memory, swap, pids policy.Amount
	read               bool
}

// usage adds a pod's cgroups up. A cgroup that is gone uses nothing.
func (k *nodeKernel) usage(sandbox string) podUsage {
	rels, ok := k.known[sandbox]
	if !ok {
		return podUsage{}
	}
	sum := podUsage{policy.Known(0), policy.Known(0), policy.Known(0), true}
	for _, rel := range rels {
		u, err := k.tracker.Usage(rel)
		switch {
		case errors.Is(err, cgroup.ErrGone):
			continue
		case err != nil:
			return podUsage{}
		}
		add(&sum.memory, u.Memory)
		add(&sum.swap, u.Swap)
		add(&sum.pids, u.PIDs)
	}
	return sum
}

// add adds to a sum, which is not known any more when n is not: −1.
func add(sum *policy.Amount, n int64) {
	sum.Value += n
	sum.Known = sum.Known && n >= 0
}

// Kill and Populated make the kernel what stops need of it.

// Kill kills every process of a container's cgroup.
func (k *nodeKernel) Kill(rel string) (int, error) { return k.layout.Kill(rel) }

// Populated reports whether a process is left in a cgroup.
func (k *nodeKernel) Populated(rel string) (bool, error) { return k.layout.Populated(rel) }

// Arm moves the kernel's memory thresholds (cgroup v1) to where the configured
// ones lie now, and notes whether one is near that leaves no time to list pods. A disk
// does: the stop for it begins with asking the runtime what each pod uses. Far from any
// threshold, disks are not read with every look. It reports whether one has come near.
func (k *nodeKernel) Arm(ts []policy.Threshold, obs *policy.Observations) (cameNear bool) {
	var root, pods []int64
	near, calm, enough := false, true, int64(0)
	for _, t := range ts {
		o := obs[t.Signal]
		if o.Status != policy.OK {
			calm = calm && (o.Status == policy.Absent || !t.Signal.IsDisk())
			continue
		}
		value := t.Value.Of(o.Capacity)
		if closeTo := isNear(t, o); t.Signal.IsDisk() {
			calm = calm && !closeTo
		} else {
			near = near || closeTo
		}
		switch t.Signal {
		case policy.MemoryAvailable:
			// The processors' page lists, which are not read anew then, may hold an eighth.
			enough = max(enough, 2*t.Target(o.Capacity)+o.Capacity/8)
			if l, ok := policy.TriggerLevel(o.Capacity, value, k.last.root.Usage, k.last.root.WorkingSet()); ok {
				root = append(root, max(l-k.last.root.Uncharged, 0))
			}
		case policy.AllocatableMemoryAvailable:
			if l, ok := policy.TriggerLevel(o.Capacity, value, k.last.pods.Usage, k.last.pods.WorkingSet()); ok {
				pods = append(pods, l)
			}
		}
	}
	cameNear = !k.near.Swap(near) && near
	k.disks.calm, k.enough = calm, enough
	if k.waker == nil || k.layout.Version == cgroup.V2 {
		return cameNear
	}
	// What cannot be armed is covered by the timer.
	_ = k.waker.SetMemoryThresholds("/", root)
	if rel := k.podsCgroup(); rel != "" {
		_ = k.waker.SetMemoryThresholds(rel, pods)
	}
	return cameNear
}

// isNear tells whether a signal is within reach of a threshold, or meets it: within as much
// again as the threshold wants, and within a tenth of the capacity, as one that wants half of
// it would always be near. A stall comes up from nothing, so that it is near from half way on.
func isNear(t policy.Threshold, o policy.Observation) bool {
	target := t.Target(o.Capacity)
	if t.Signal.IsStall() {
		return 2*(o.Capacity-o.Available) > o.Capacity-target
	}
	return o.Available-target < min(target, o.Capacity/10)
}

// Cgroup names the hierarchy's kind.
func (k *nodeKernel) Cgroup() string { return fmt.Sprint(k.layout.Version) }
