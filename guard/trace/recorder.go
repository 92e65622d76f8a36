package trace

import (
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// recordStep is the part of its capacity by which a signal changes between two lines, at most.
const recordStep = 1000

// Observer observes a node's signals. *eviction.Manager is one.
type Observer interface {
	Observe()
	Snapshot() api.State
	Pause() time.Duration       // until the next observation
	SamplePause() time.Duration // until the next reading of the pods' usage
}

// Source is a node whose trace is recorded.
type Source struct {
	Observer Observer
	Now      func() time.Duration // boot clock
	Layout   func() policy.Layout // of the disks
	// Pods returns the pods as last listed, and the candidates made of them with the usage now.
	Pods   func() ([]inventory.Pod, []policy.Candidate)
	Images func() []Image // nil = unknown
	Passes Passes         // nil = no service guards the node
}

// Passes returns the passes that the service that guards the node has made since the last call that succeeded, oldest
// first. The service may end a shortage within a millisecond, so that only its own observation shows it.
type Passes func(ctx context.Context) ([]api.Pass, error)

// settleTime is how long a line waits for the passes of the service before it is written.
const settleTime = time.Second

// recorder writes a trace. It observes the node as often as the service does.
type recorder struct {
	src      Source
	out      *Writer
	interval time.Duration // most time between two lines
	start    time.Duration // of the trace, and of its ages

	due   time.Duration // when the last line was due
	obs   policy.Observations
	read  [policy.SignalCount]bool // signals that were read in some line
	met   []policy.Met
	held  []Line        // not yet written, oldest first
	last  Line          // written last
	told  time.Duration // when the held lines were last written
	began time.Time     // wall clock at the start
}

// Record writes a trace until ctx ends: a line every interval, and more lines near a threshold. It returns the
// error of a write.
func Record(ctx context.Context, src Source, w io.Writer, interval time.Duration) error {
	r := &recorder{src: src, out: NewWriter(w), start: src.Now(), interval: interval, began: time.Now()}
	for {
		now := src.Now()
		src.Observer.Observe()
		state := src.Observer.Snapshot()
		if r.isDue(now, &state) {
			r.hold(now, &state)
		}
		if now-r.told >= settleTime {
			if err := r.write(ctx, now); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return r.write(context.WithoutCancel(ctx), now)
		case <-time.After(min(src.Observer.Pause(), interval)):
		}
	}
}

// isDue reports whether the last observation belongs into the trace: because enough time is over, a threshold
// was crossed or is due, or a signal has moved. A threshold of a disk may be due for hours, and the trace may be
// on that disk.
func (r *recorder) isDue(now time.Duration, state *api.State) bool {
	if now-r.due >= min(r.interval, r.src.Observer.SamplePause()) ||
		!slices.EqualFunc(state.Pressure.Met, r.met, func(a, b policy.Met) bool { return a.Threshold == b.Threshold && a.Due == b.Due }) ||
		slices.ContainsFunc(state.Pressure.Met, func(m policy.Met) bool { return m.Due && !m.Signal.IsDisk() }) {
		return true
	}
	for s, o := range state.Observations {
		if moved := o.Available - r.obs[s].Available; max(moved, -moved) > o.Capacity/recordStep {
			return true
		}
	}
	return false
}

// at returns a time since boot as one since the start of the trace.
func (r *recorder) at(now time.Duration) api.Duration {
	return api.Duration((now - r.start).Truncate(time.Microsecond))
}

// hold makes a line of the last observation and the pods' usage now.
func (r *recorder) hold(now time.Duration, state *api.State) {
	r.due, r.obs, r.met = now, *state.Observations, state.Pressure.Met
	line := Line{
		At: r.at(now), Began: r.began,
		Signals: map[policy.Signal]Observation{}, Layout: r.src.Layout().String(), Images: r.src.Images(),
	}
	for s := range policy.SignalCount {
		switch o := r.obs[s]; {
		case o.Status == policy.OK:
			r.read[s] = true
			line.Signals[s] = Observation{Available: QuantityOf(o.Available), Capacity: QuantityOf(o.Capacity)}
		case r.read[s]: // left out, it would keep its last value
			line.Signals[s] = Observation{Available: QuantityOf(0), Capacity: QuantityOf(0)}
		}
	}
	pods, cs := r.src.Pods()
	for i := range cs {
		line.Pods = append(line.Pods, PodOf(&pods[i], &cs[i], r.start))
	}
	r.held = append(r.held, line)
}

// write writes the held lines, and one for each stop that the service began meanwhile.
func (r *recorder) write(ctx context.Context, now time.Duration) error {
	for _, p := range r.passes(ctx) {
		if p.Stop != nil {
			r.insert(&p)
		}
	}
	for _, l := range r.held {
		if err := r.out.Write(l); err != nil {
			return err
		}
		r.last = l
	}
	r.held, r.told = r.held[:0], now
	return nil
}

// insert adds a line with what the service observed in a pass. All else is as in the line before it.
func (r *recorder) insert(p *api.Pass) {
	at := max(r.at(time.Duration(p.At)), r.last.At)
	i := len(r.held)
	for i > 0 && r.held[i-1].At > at {
		i--
	}
	before := r.last
	if i > 0 {
		before = r.held[i-1]
	}
	if before.Signals == nil {
		return // the service was faster than the first line
	}
	line := before
	line.At, line.Signals = at, maps.Clone(before.Signals)
	for _, v := range p.Signals {
		if v.Status == policy.OK.String() {
			line.Signals[v.Signal] = Observation{Available: QuantityOf(v.Available), Capacity: QuantityOf(v.Capacity)}
		}
	}
	r.held = slices.Insert(r.held, i, line)
}

// askTimeout limits how long a service that hangs delays the next observation.
const askTimeout = 250 * time.Millisecond

// passes returns the service's passes since the last call. Without an answer there are none.
func (r *recorder) passes(ctx context.Context) []api.Pass {
	if r.src.Passes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	passes, err := r.src.Passes(ctx)
	if err != nil {
		return nil
	}
	return passes
}
