package simulate

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Node is a node made from a trace. It implements the Kernel, Runtime, Reclaimer and Stopper of package
// eviction. A stopped pod is removed, unless the trace names it again. If a recorded node keeps running it, the
// simulation counts what it uses as available, and likewise the size of a removed image that the node keeps.
type Node struct {
	cfg     config.Config
	now     time.Duration
	layout  policy.Layout
	raw     policy.Observations // as in the trace
	obs     policy.Observations
	after   map[policy.Signal]trace.Observation
	stopped map[string]*stoppedPod  // pods that were stopped and not named since, by key
	back    map[string]api.Duration // when a stopped pod was named again, by key
	known   map[string]trace.Pod    // the last state of every pod named so far, by key
	pods    []trace.Pod
	listed  []inventory.Pod // made of pods; nil = not yet
	images  []trace.Image
	removed map[string]int64       // images that were removed, by ID, and still are on the recorded node: their sizes
	steps   []reclaim.Step         // that ran at this line
	reclaim map[policy.Signal]bool // signals reclaimed at this line
	// recorded means that the trace is of a node that the simulation did not change.
	recorded bool
}

// stoppedPod is a pod that the simulation stopped.
type stoppedPod struct {
	runs  bool          // on the recorded node
	pod   trace.Pod     // as it ended there
	ended time.Duration // when
	// least is the least that the trace had available since the stop, and back the most that has come back since then.
	least, back [policy.SignalCount]int64
}

// deletedWithin is how long a runtime may take to delete the files of a pod that has ended.
const deletedWithin = 30 * time.Second

// observe follows the signals of the trace.
func (p *stoppedPod) observe(raw *policy.Observations) {
	for s, o := range raw {
		p.least[s] = min(p.least[s], o.Available)
		p.back[s] = max(p.back[s], o.Available-p.least[s])
	}
}

// NewNode returns a node without pods. Advance moves it to a line of the trace.
func NewNode(cfg config.Config) *Node {
	return &Node{cfg: cfg, known: map[string]trace.Pod{}, stopped: map[string]*stoppedPod{}, back: map[string]api.Duration{}, removed: map[string]int64{}}
}

// Advance moves the node to a line of the trace.
func (n *Node) Advance(l trace.Line) {
	n.now = start + time.Duration(l.At)
	n.reclaim = map[policy.Signal]bool{}
	n.steps, n.listed = nil, nil
	if l.Layout != "" {
		n.layout, _ = policy.ParseLayout(l.Layout) // the reader has checked it
	}
	for s, o := range l.Signals {
		n.raw[s] = o.Over(n.raw[s])
		n.obs[s] = n.raw[s]
	}
	if l.AfterReclaim != nil {
		n.after = l.AfterReclaim
	}
	n.recorded = n.recorded || l.Recorded
	n.advancePods(l)
	n.advanceImages(l.Images)
	if n.recorded {
		n.obs = n.raw
		n.addStopped()
		for _, size := range n.removed {
			n.addImage(size)
		}
	}
	for s := range policy.SignalCount {
		n.obs[s].At = n.now
		if o := n.raw[s]; s.IsStall() && o.Status == policy.OK {
			// The trace may use any unit, because only the share counts.
			n.obs[s] = policy.ObserveStall(time.Duration(o.Capacity-o.Available), time.Duration(o.Capacity), n.now)
		}
	}
}

// advanceImages replaces the images by those of a line, nil = as before. An image that was removed comes back only when a
// container uses it: then it was pulled again.
func (n *Node) advanceImages(images []trace.Image) {
	if images == nil {
		return
	}
	removed := n.removed
	n.images, n.removed = nil, map[string]int64{}
	for _, img := range images {
		if size, ok := removed[img.ID]; ok && n.recorded && !img.InUse {
			n.removed[img.ID] = size
		} else {
			n.images = append(n.images, img)
		}
	}
}

// advancePods replaces the pods by those of a line, or changes those that it names.
func (n *Node) advancePods(l trace.Line) {
	if l.Pods != nil {
		n.pods = n.pods[:0]
	}
	for _, key := range l.EndedPods {
		n.remove(key)
		if p := n.stopped[key]; p != nil && p.runs {
			p.runs, p.pod, p.ended = false, n.known[key], n.now
		}
		if n.recorded {
			delete(n.known, key) // if it starts again, the recorder writes all that it knows of it
		}
	}
	for _, p := range slices.Concat(l.Pods, l.ChangedPods) {
		key := p.Key()
		p = p.Over(n.known[key])
		n.known[key] = p
		switch stopped := n.stopped[key]; {
		case stopped != nil && stopped.runs && n.recorded:
			continue
		case stopped != nil:
			// Named again after a stop: the pod was created again, whenever it was first created.
			n.back[key] = l.At
			delete(n.stopped, key)
		}
		if i := n.find(key); i >= 0 {
			n.pods[i] = p
		} else {
			n.pods = append(n.pods, p)
		}
	}
}

func (n *Node) remove(key string) {
	if i := n.find(key); i >= 0 {
		n.pods, n.listed = slices.Delete(n.pods, i, i+1), nil
	}
}

// find returns the index of a pod, or -1.
func (n *Node) find(key string) int {
	for i := range n.pods {
		if n.pods[i].Key() == key {
			return i
		}
	}
	return -1
}

// addStopped adds to the signals what the stopped pods still use on the recorded node, and what they wrote while it is
// being deleted there.
func (n *Node) addStopped() {
	for key, p := range n.stopped {
		if p.observe(&n.raw); p.runs {
			n.addUsage(key, n.known[key], nil)
		} else if n.now-p.ended < deletedWithin {
			n.addUsage(key, p.pod, p)
		}
	}
}

// addUsage adds to the signals what a pod uses. If it has ended, that is what has not come back of the disks.
func (n *Node) addUsage(key string, t trace.Pod, ended *stoppedPod) {
	c := []policy.Candidate{{ID: key}}
	measure(&c[0], &t)
	for s := range policy.SignalCount {
		o, back := &n.obs[s], c[0].Swap.Value
		if o.Status != policy.OK || s.IsStall() || ended != nil && !s.IsDisk() {
			continue
		}
		if s != policy.SwapAvailable {
			back = policy.Rank(c, s, n.layout, nil)[0].Yield
		}
		if ended != nil {
			back = max(back-ended.back[s], 0)
		}
		o.Available += min(back, o.Capacity-o.Available)
	}
}

// Now returns the virtual time since boot.
func (n *Node) Now() time.Duration { return n.now }

// Observe returns the line's signals. For a signal that was reclaimed at this line, it returns what the
// trace has in after_reclaim.
func (n *Node) Observe(obs *policy.Observations) {
	*obs = n.obs
	for s := range obs {
		obs[s].At = n.now
	}
	for s := range n.reclaim {
		if o, ok := n.after[s]; ok {
			obs[s] = o.Over(obs[s])
		}
	}
}

// Layout returns the layout in the trace.
func (n *Node) Layout() policy.Layout { return n.layout }

// LayersInMemory returns false: a trace says what a stop gave back.
func (n *Node) LayersInMemory() bool { return false }

// ForgetStalls does nothing: a trace says how long tasks were stalled.
func (n *Node) ForgetStalls() {}

// UnlistedIn returns nothing: a trace lists everything that runs.
func (n *Node) UnlistedIn(inventory.Pod) []string { return nil }

// Unlisted finds nothing, for the same reason.
func (n *Node) Unlisted([]inventory.Pod, policy.Signal) (int64, bool) { return 0, false }

// ConfirmUnlisted does nothing.
func (n *Node) ConfirmUnlisted(time.Duration) {}

// CPUs does not matter: the lines of a trace set the pace.
func (n *Node) CPUs() int { return 1 }

// PodsMemory is unknown: a trace has no cgroup of all pods, so their sum counts.
func (n *Node) PodsMemory() policy.Amount { return policy.Amount{} }

// Remaining returns 0: a stopped pod is gone at once.
func (n *Node) Remaining(inventory.Pod, policy.Pool) policy.Amount { return policy.Known(0) }

// Measure sets the usage of the trace's pods.
func (n *Node) Measure(cs []policy.Candidate) {
	for i := range cs {
		at := n.findSandbox(cs[i].ID)
		if at < 0 {
			continue
		}
		measure(&cs[i], &n.pods[at])
		cs[i].DiskAt = n.now
	}
}

// DiskUsage returns what one of the trace's pods uses of the disks.
func (n *Node) DiskUsage(sandbox string) (bytes, inodes policy.DiskUsage) {
	var c policy.Candidate
	if at := n.findSandbox(sandbox); at >= 0 {
		measure(&c, &n.pods[at])
	}
	return c.Disk, c.Inodes
}

func measure(c *policy.Candidate, p *trace.Pod) {
	if p.NoStats != nil && *p.NoStats {
		return
	}
	c.Memory, c.Swap = amount(p.MemoryUsage), amount(p.SwapUsage)
	c.ActiveFile = amount(p.MemoryFile).Value
	c.Disk, c.Inodes = p.DiskUsage.Usage(), p.InodesUsage.Usage()
	if p.PIDs != nil {
		c.PIDs = policy.Known(*p.PIDs)
	}
}

func amount(q *trace.Quantity) policy.Amount {
	if q == nil {
		return policy.Amount{}
	}
	return policy.Amount{Value: int64(*q), Known: true}
}

// Inventory returns the trace's pods. The configuration's rules apply to them as in the service.
func (n *Node) Inventory(context.Context, time.Duration) inventory.Inventory {
	if n.listed == nil { // a pass asks several times
		n.listed = make([]inventory.Pod, len(n.pods))
		for i := range n.pods {
			n.listed[i] = n.pod(&n.pods[i])
		}
	}
	return inventory.Inventory{Pods: n.listed, At: n.now}
}

func (n *Node) pod(t *trace.Pod) inventory.Pod {
	ns, name := splitName(t.Name)
	f := inventory.Facts{
		Namespace: ns, Name: name, Labels: t.Labels, Annotations: t.Annotations,
		Static:    t.Static != nil && *t.Static,
		Protected: t.Protected != nil && *t.Protected,
		Priority:  t.Priority,
	}
	p := inventory.Pod{Candidate: policy.Candidate{
		ID: n.sandbox(t), Namespace: ns, Name: name, UID: t.UID,
		Workload: inventory.Workload(ns, name, t.Labels),
		Created:  n.created(t),
	}}
	p.Labels = t.Labels
	p.Grace = inventory.DefaultPodGrace
	if t.GracePeriod != nil {
		p.Grace = time.Duration(*t.GracePeriod)
	}
	if t.QoS != nil {
		p.QoS, _ = policy.ParseQoS(*t.QoS) // the reader has checked it
	}
	p.RequestSource = api.SourceUnknown
	if t.MemoryRequest != nil {
		p.MemoryRequest, p.RequestSource = int64(*t.MemoryRequest), "trace"
	}
	p.StorageRequest = amount(t.StorageRequest).Value
	p.StorageLimit = amount(t.StorageLimit).Value
	inventory.ApplyRules(&n.cfg, &p, f)
	return p
}

// sandbox returns the ID of a pod's sandbox. A pod that came back has another one.
func (n *Node) sandbox(t *trace.Pod) string {
	if back, ok := n.back[t.Key()]; ok {
		return t.Key() + "@" + time.Duration(back).String()
	}
	return t.Key()
}

// keyOf returns the key of the pod of a sandbox.
func (n *Node) keyOf(sandbox string) string {
	if at := strings.LastIndexByte(sandbox, '@'); at >= 0 {
		if _, ok := n.back[sandbox[:at]]; ok {
			return sandbox[:at]
		}
	}
	return sandbox
}

// findSandbox returns the index of the pod of a sandbox, or -1.
func (n *Node) findSandbox(id string) int {
	i := n.find(n.keyOf(id))
	if i >= 0 && n.sandbox(&n.pods[i]) != id {
		return -1
	}
	return i
}

// created returns when a pod's sandbox was created. A pod that came back has a younger sandbox than the
// trace says, because the recorded node did not stop it.
func (n *Node) created(t *trace.Pod) time.Duration {
	created := start
	if t.Created != nil {
		created += time.Duration(*t.Created)
	}
	if back, ok := n.back[t.Key()]; ok {
		created = max(created, start+time.Duration(back))
	}
	return created
}

// Reclaim runs every step that frees space on the pressed device, as far as the trace shows what it frees.
func (n *Node) Reclaim(_ context.Context, m policy.Met, layout policy.Layout, _ []inventory.Pod) eviction.ReliefJob {
	steps := eviction.Steps(&n.cfg, m.Signal, layout, policy.LogsPlace{})
	names := make([]string, len(steps))
	before := n.obs[m.Signal].Available
	if slices.Contains(steps, reclaim.StepImages) {
		n.removeImages(m)
	}
	for s := range policy.SignalCount {
		if len(steps) > 0 && (s == m.Signal || layout.SameDevice(s, m.Signal)) {
			n.reclaim[s] = true
		}
	}
	for i, s := range steps {
		names[i] = string(s)
		if !slices.Contains(n.steps, s) {
			n.steps = append(n.steps, s)
		}
	}
	return eviction.Finished(eviction.Relief{Steps: names, Freed: n.obs[m.Signal].Available - before})
}

// removeImages removes prunable images in the trace's order until the target is met.
func (n *Node) removeImages(m policy.Met) {
	kept, images := n.images[:0], eviction.ImagePolicy(&n.cfg.Images)
	for _, img := range n.images {
		if policy.Relieved(m.Threshold, n.obs[m.Signal]) || images.Keeps(factsOf(img)) != "" {
			kept = append(kept, img)
			continue
		}
		n.removed[img.ID] = int64(img.Size)
		n.addImage(int64(img.Size))
	}
	n.images = kept
}

// addImage adds the size of a removed image to every signal of its device, unless the trace has the signal in
// after_reclaim.
func (n *Node) addImage(size int64) {
	for s := range policy.SignalCount {
		o := &n.obs[s]
		if _, known := n.after[s]; !known && s.Resource() == policy.ResourceDisk && n.layout.SameDevice(s, policy.ImageFSAvailable) {
			o.Available += min(size, o.Capacity-o.Available)
		}
	}
}

// factsOf returns what an image's line says about it. A trace does not record whether an image was ever used: a young
// one counts as never used.
func factsOf(img trace.Image) *reclaim.ImageFacts {
	f := &reclaim.ImageFacts{Image: cri.Image{ID: img.ID, Tags: []string{img.Name}, Pinned: img.Pinned}, Age: math.MaxInt64}
	if img.InUse {
		f.InUse = "a container"
	}
	if img.Repullable != nil && !*img.Repullable {
		f.Unpullable = "the trace says so"
	}
	if img.Age != nil {
		f.Age = time.Duration(*img.Age)
	}
	return f
}

// Stop removes the pod before the next line.
func (n *Node) Stop(_ context.Context, o eviction.StopOrder) eviction.StopJob {
	key := n.keyOf(o.Pod.ID)
	n.remove(key)
	p := &stoppedPod{runs: true}
	for s, o := range n.raw {
		p.least[s] = o.Available
	}
	n.stopped[key] = p
	return finishedStop{eviction.StopOutcome{Result: api.StopResult{Emptied: true, Confirmed: true, Method: "trace"}, Returned: true}}
}

// finishedStop is a stop that is done before it starts.
type finishedStop struct{ outcome eviction.StopOutcome }

func (f finishedStop) Done() <-chan struct{}         { return eviction.Finished{}.Done() }
func (f finishedStop) Escalate(bool, []string)       {}
func (f finishedStop) Discard(_, _ bool)             {}
func (f finishedStop) Outcome() eviction.StopOutcome { return f.outcome }

// splitName splits "namespace/name". A name without a namespace is in namespace default.
func splitName(s string) (namespace, name string) {
	if ns, n, ok := strings.Cut(s, "/"); ok {
		return ns, n
	}
	return "default", s
}
