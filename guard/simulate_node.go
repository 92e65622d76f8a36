package guard

import (
	"context"
	"slices"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// traceNode is a node made of a trace: kernel, runtime, reclaimer and stopper of
// the pass in one. What is stopped leaves the pods unless the trace names it
// again.
type traceNode struct {
	cfg     Config
	now     time.Duration
	layout  policy.Layout
	raw     policy.Observations // as the trace has it
	obs     policy.Observations
	after   map[policy.Signal]TraceObservation
	grow    growth
	stopped map[string]TraceDuration // when a pod was stopped, by key
	known   map[string]TracePod      // the last of every pod ever named, by key
	pods    []TracePod
	images  []TraceImage
	steps   []reclaim.Step
	reclaim map[policy.Signal]bool // reclaimed at this line
}

func newTraceNode(cfg Config) *traceNode {
	return &traceNode{cfg: cfg, known: map[string]TracePod{}, stopped: map[string]TraceDuration{}}
}

// advance moves to a line.
func (n *traceNode) advance(l TraceLine) {
	n.now = simulationStart + time.Duration(l.At)
	n.reclaim = map[policy.Signal]bool{}
	n.steps = nil
	if l.Layout != "" {
		n.layout, _ = policy.ParseLayout(l.Layout) // the reader has checked it
	}
	for s, o := range l.Signals {
		n.raw[s] = o.over(n.raw[s])
		n.obs[s] = n.raw[s]
	}
	for s := range policy.SignalCount {
		n.obs[s].At = n.now
		if o := n.raw[s]; s.IsStall() && o.Status == policy.OK {
			// In whatever unit the trace has it: the share is what counts.
			n.obs[s] = policy.ObserveStall(time.Duration(o.Capacity-o.Available), time.Duration(o.Capacity), n.now)
		}
	}
	if l.AfterReclaim != nil {
		n.after = l.AfterReclaim
	}
	if l.Pods != nil {
		n.pods = n.pods[:0]
		for _, p := range l.Pods {
			p = p.over(n.known[p.key()])
			if stopped, ok := n.stopped[p.key()]; ok && p.createdBy(stopped) {
				// Named again after a stop: it was made again, whatever its first
				// creation was.
				p.Created = &l.At
				delete(n.stopped, p.key())
			}
			n.known[p.key()] = p
			n.pods = append(n.pods, p)
		}
	}
	if l.Images != nil {
		n.images = slices.Clone(l.Images)
	}
}

func (o TraceObservation) over(old policy.Observation) policy.Observation {
	old.Status = policy.OK
	if o.Available != nil {
		old.Available = int64(*o.Available)
	}
	if o.Capacity != nil {
		old.Capacity = int64(*o.Capacity)
	}
	return old
}

// takeSteps returns the reclaim steps that ran at this line.
func (n *traceNode) takeSteps() []reclaim.Step { return n.steps }

// Now is virtual time.
func (n *traceNode) Now() time.Duration { return n.now }

// Observe gives the line's signals; those of a reclaim that ran at this line as
// the trace says they are after it.
func (n *traceNode) Observe(obs *policy.Observations) {
	*obs = n.obs
	for s := range obs {
		obs[s].At = n.now
	}
	for s := range n.reclaim {
		if o, ok := n.after[s]; ok {
			obs[s] = o.over(obs[s])
		}
	}
}

// Layout is what the trace says.
func (n *traceNode) Layout() policy.Layout { return n.layout }

// HasUnlisted is false: a trace lists all that runs.
func (n *traceNode) HasUnlisted(Pod) bool { return false }

// Outlived has nothing to note: there are no strangers.
func (n *traceNode) Outlived() {}

// Measure gives the usage of the trace's pods; none of them is a stranger.
func (n *traceNode) Measure(cs []policy.Candidate, _ []Pod, _ policy.Signal) (int64, bool) {
	for i := range cs {
		at := slices.IndexFunc(n.pods, func(p TracePod) bool { return p.key() == cs[i].ID })
		if at < 0 {
			continue
		}
		p := &n.pods[at]
		if p.NoStats != nil && *p.NoStats {
			continue
		}
		cs[i].Memory, cs[i].Swap = amount(p.MemoryUsage), amount(p.SwapUsage)
		cs[i].Growth = n.grow.rate(cs[i].ID, cs[i].Memory, n.now)
		cs[i].Disk, cs[i].Inodes = p.DiskUsage.usage(), p.InodesUsage.usage()
		if p.PIDs != nil {
			cs[i].PIDs = policy.Amount{Value: *p.PIDs, Known: true}
		}
	}
	return 0, false
}

func amount(q *TraceQuantity) policy.Amount {
	if q == nil {
		return policy.Amount{}
	}
	return policy.Amount{Value: int64(*q), Known: true}
}

func (d *TraceDisk) usage() policy.DiskUsage {
	if d == nil {
		return policy.DiskUsage{}
	}
	return policy.DiskUsage{Rootfs: int64(d.Rootfs), Logs: int64(d.Logs), Volumes: int64(d.Volumes), Known: true, LogsApart: d.LogsApart}
}

// Inventory gives the trace's pods, judged by the configuration's rules as the
// service judges real ones.
func (n *traceNode) Inventory(context.Context, bool) Inventory {
	inv := Inventory{At: n.now}
	for i := range n.pods {
		inv.Pods = append(inv.Pods, n.pod(&n.pods[i]))
	}
	return inv
}

func (n *traceNode) pod(t *TracePod) Pod {
	ns, name := splitName(t.Name)
	f := podFacts{
		Namespace: ns, Name: name, Labels: t.Labels,
		Static:    t.Static != nil && *t.Static,
		Protected: t.Protected != nil && *t.Protected,
		Priority:  t.Priority,
	}
	p := Pod{Candidate: policy.Candidate{
		ID: t.key(), Namespace: ns, Name: name, UID: t.UID,
		Workload: policy.Workload(ns, name, t.Labels),
		Created:  n.created(t),
	}}
	p.Labels = t.Labels
	p.Grace = defaultPodGrace
	if t.GracePeriod != nil {
		p.Grace = time.Duration(*t.GracePeriod)
	}
	if t.QoS != nil {
		p.QoS, _ = policy.ParseQoS(*t.QoS) // the reader has checked it
	}
	p.MemoryRequest, p.RequestSource = amount(t.MemoryRequest).Value, "trace"
	p.StorageRequest = amount(t.StorageRequest).Value
	p.StorageLimit = amount(t.StorageLimit).Value
	n.cfg.judge(&p, f)
	return p
}

func (n *traceNode) created(t *TracePod) time.Duration {
	if t.Created == nil {
		return simulationStart
	}
	return simulationStart + time.Duration(*t.Created)
}

// Reclaim runs every step that lives on the pressed device, as far as a trace
// can tell what that frees.
func (n *traceNode) Reclaim(_ context.Context, m policy.Met, layout policy.Layout, _ []Pod) ReliefJob {
	steps := n.cfg.steps(m.Signal, layout)
	names := make([]string, len(steps))
	before := n.obs[m.Signal].Available
	if slices.Contains(steps, reclaim.StepImages) {
		n.removeImages(m)
	}
	n.reclaim[m.Signal] = len(steps) > 0
	if len(steps) == 0 {
		delete(n.reclaim, m.Signal)
	}
	for i, s := range steps {
		names[i] = string(s)
		if !slices.Contains(n.steps, s) {
			n.steps = append(n.steps, s)
		}
	}
	return finishedRelief{Relief{Steps: names, Freed: n.obs[m.Signal].Available - before}}
}

// removeImages removes prunable images in the order of the trace until the
// target is met. What that frees counts unless the trace itself says what
// reclaiming came to.
func (n *traceNode) removeImages(m policy.Met) {
	_, told := n.after[m.Signal]
	kept := n.images[:0]
	for _, img := range n.images {
		if policy.Relieved(m.Threshold, n.obs[m.Signal]) || !n.cfg.Images.prunable(img) {
			kept = append(kept, img)
			continue
		}
		if !told && m.Signal.Resource() == policy.ResourceDisk {
			o := &n.obs[m.Signal]
			o.Available = min(o.Available+int64(img.Size), o.Capacity)
		}
	}
	n.images = kept
}

// prunable tells whether a trace's image may go, under the rules for real ones.
func (c ImagesConfig) prunable(img TraceImage) bool {
	if img.Pinned || img.InUse || c.Prune == PruneNever {
		return false
	}
	if c.Prune == PruneAuto && img.Repullable != nil && !*img.Repullable {
		return false
	}
	if named := (cri.Image{ID: img.ID, Tags: []string{img.Name}}); slices.ContainsFunc(c.Keep, func(p string) bool { return reclaim.MatchesImage(p, named) }) {
		return false
	}
	if img.Age == nil {
		return true
	}
	// A trace does not tell whether an image was ever used: a young one counts
	// as never used, as it does for the service.
	return time.Duration(*img.Age) >= max(c.MinAge, c.UnusedGrace)
}

// Stop takes the pod away before the next line.
func (n *traceNode) Stop(_ context.Context, o StopOrder) StopJob {
	n.pods = slices.DeleteFunc(n.pods, func(p TracePod) bool { return p.key() == o.Pod.ID })
	n.stopped[o.Pod.ID] = TraceDuration(n.now - simulationStart)
	return finishedStop{StopOutcome{Result: StopResult{Emptied: true, Confirmed: true, Method: "trace"}, Returned: true}}
}

// closedChan is done before it starts.
func closedChan() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

type finishedRelief struct{ relief Relief }

func (f finishedRelief) Done() <-chan struct{} { return closedChan() }
func (f finishedRelief) Relief() Relief        { return f.relief }

type finishedStop struct{ outcome StopOutcome }

func (f finishedStop) Done() <-chan struct{} { return closedChan() }
func (f finishedStop) Escalate(bool)         {}
func (f finishedStop) Outcome() StopOutcome  { return f.outcome }
