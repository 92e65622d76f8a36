package world

import (
	"cmp"
	"io"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

// traceEvery is the time between two lines of a trace while the service stops nothing.
const traceEvery = 100 * time.Millisecond

// tracer writes what happens to a trace for criguard simulate.
type tracer struct {
	lines *trace.Writer // nil = no trace is wanted
	last  time.Duration // when the last line was due; 0 = none was
	err   error
}

// WriteTrace writes a trace of what happens from now on.
func (w *World) WriteTrace(to io.Writer) { w.tracer.lines = trace.NewWriter(to) }

// write adds a line, if one is due.
func (t *tracer) write(w *World) {
	if t.lines == nil || t.err != nil || t.last != 0 && w.Now()-t.last < traceEvery && !w.isStopping() {
		return
	}
	t.last = w.Now()
	signal := func(available, capacity int64) trace.Observation {
		return trace.Observation{Available: trace.QuantityOf(max(available, 0)), Capacity: trace.QuantityOf(capacity)}
	}
	l := trace.Line{At: api.Duration(w.Now()), Recorded: true, Signals: map[policy.Signal]trace.Observation{
		policy.MemoryAvailable: signal(w.available(), w.capacity),
		policy.PIDAvailable:    signal(w.freeTasks(), w.taskLimit),
		policy.NodeFSAvailable: signal(w.disk.available(), w.disk.total),
	}}
	for _, p := range w.pods {
		if !p.runs() && (p.gone || time.Since(p.killed) > 0) { // what is killed now was there when it was decided
			continue
		}
		protected, created, qos := p.protected, api.Duration(p.spec.CreatedAt.Sub(w.began)), cmp.Or(p.spec.QoS, "BestEffort") // the server's default
		l.Pods = append(l.Pods, trace.Pod{
			Name: p.String(), UID: p.UID, QoS: &qos, MemoryUsage: trace.QuantityOf(p.used), PIDs: &p.tasks, Protected: &protected, Created: &created,
			DiskUsage: &trace.Disk{Rootfs: trace.Quantity(p.wrote.bytes)},
		})
	}
	t.err = t.lines.Write(l)
}
