package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/criguard/criguard/policy"
)

// A Look is one direct look at the node, without the service and without any
// act.
type Look struct {
	node  *node
	guard *Guard
}

// OpenLook looks at the node: its signals and, as far as a runtime answers, its
// pods. A runtime that does not answer is told by Status; Rank needs one.
func OpenLook(ctx context.Context, cfg Config) (*Look, error) {
	n, err := openNode(cfg)
	if err != nil {
		return nil, err
	}
	l := &Look{node: n, guard: New(cfg, n.kernel, n, nil, nil, policy.NewRestraint(n.bootID))}
	l.Refresh(ctx)
	// A filesystem that hangs is known to after a while: until then, what shares a device is not.
	for late := time.Now().Add(2 * diskTooLate); !n.kernel.disks.isSettled(n.kernel.disks.getPaths()) && time.Now().Before(late) && ctx.Err() == nil; {
		time.Sleep(diskWait)
		l.observe()
	}
	return l, nil
}

// Refresh looks again.
func (l *Look) Refresh(ctx context.Context) {
	l.node.lister.List(ctx)
	l.observe()
}

// observe reads the signals and judges the thresholds; it acts on nothing.
func (l *Look) observe() {
	g := l.guard
	g.kernel.Observe(&g.obs)
	g.derive()
	g.state, g.pressure = policy.Evaluate(g.state, g.thresholds, g.settings, &g.obs, g.kernel.Now())
}

// Close closes what was opened.
func (l *Look) Close() { l.node.Close() }

// Status is the state of the node.
func (l *Look) Status() Status {
	return l.guard.status(l.node)
}

// Rank ranks the pods for a signal. ErrNoRuntime when no runtime answers. For
// disks it measures first what each pod uses.
func (l *Look) Rank(ctx context.Context, s policy.Signal) (Ranking, error) {
	inv := l.node.lister.Current()
	if inv.Err != nil {
		return Ranking{}, inv.Err
	}
	if s.IsDisk() {
		l.node.meter.measure(ctx, inv.Pods)
	}
	return l.guard.rankNow(ctx, s), nil
}

// Record writes a line of a trace every interval until ctx ends, the first one at
// once. ErrNoRuntime when no runtime answers at the start; one that goes away
// later leaves the pods as they were.
func (l *Look) Record(ctx context.Context, w io.Writer, interval time.Duration) error {
	if err := l.node.lister.Current().Err; err != nil {
		return err
	}
	start := l.guard.kernel.Now()
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := enc.Encode(l.traceLine(ctx, start)); err != nil {
			return fmt.Errorf("write trace: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		l.Refresh(ctx)
	}
}

// traceLine is the node at this moment.
func (l *Look) traceLine(ctx context.Context, start time.Duration) TraceLine {
	g, n := l.guard, l.node
	line := TraceLine{
		At:      TraceDuration((g.kernel.Now() - start).Round(time.Millisecond)),
		Signals: map[policy.Signal]TraceObservation{}, Pods: []TracePod{}, Layout: g.kernel.Layout().String(),
	}
	for s := range policy.SignalCount {
		if o := g.obs[s]; o.Status == policy.OK {
			line.Signals[s] = TraceObservation{quantity(o.Available), quantity(o.Capacity)}
		}
	}
	inv := n.lister.Current()
	cs := candidates(inv.Pods)
	n.meter.measure(ctx, inv.Pods)
	g.kernel.Measure(cs, inv.Pods, policy.MemoryAvailable)
	for i := range cs {
		line.Pods = append(line.Pods, tracePod(&inv.Pods[i], &cs[i], start))
	}
	line.Images = n.traceImages(ctx)
	return line
}

// tracePod writes down the facts that a pod is judged by, not the judgement: the
// simulation's configuration may have other rules.
func tracePod(p *Pod, c *policy.Candidate, start time.Duration) TracePod {
	qos := p.QoS.String()
	created, grace := TraceDuration(p.Created-start), TraceDuration(p.Grace)
	noStats := !c.Memory.Known && !c.PIDs.Known
	t := TracePod{
		Name: p.FullName(), UID: p.UID, QoS: &qos, Static: &p.Static, Created: &created, GracePeriod: &grace,
		MemoryRequest: quantity(p.MemoryRequest), StorageRequest: quantity(p.StorageRequest), NoStats: &noStats, Labels: p.Labels,
	}
	switch {
	case p.OwnPriority != nil:
		t.Priority = p.OwnPriority
	case p.PrioritySource == sourceAnnotation:
		t.Priority = &p.Priority
	}
	if p.Protection == protectedAnnotation || p.Protection == protectedSelf {
		yes := true
		t.Protected = &yes
	}
	if p.StorageLimit > 0 {
		t.StorageLimit = quantity(p.StorageLimit)
	}
	if c.Memory.Known {
		t.MemoryUsage = quantity(c.Memory.Value)
	}
	if c.Swap.Known {
		t.SwapUsage = quantity(c.Swap.Value)
	}
	if c.PIDs.Known && c.PIDs.Value >= 0 {
		t.PIDs = &c.PIDs.Value
	}
	if c.Disk.Known {
		t.DiskUsage = traceDisk(c.Disk)
	}
	if c.Inodes.Known {
		t.InodesUsage = traceDisk(c.Inodes)
	}
	return t
}

func quantity(n int64) *TraceQuantity {
	q := TraceQuantity(max(n, 0))
	return &q
}

func traceDisk(u policy.DiskUsage) *TraceDisk {
	return &TraceDisk{TraceQuantity(u.Rootfs), TraceQuantity(u.Logs), TraceQuantity(u.Volumes), u.LogsApart}
}
