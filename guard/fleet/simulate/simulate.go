package simulate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
)

// Decision is the result of one line of a trace.
type Decision struct {
	At       api.Duration    `json:"at"`       // time of the line
	Zones    map[string]Zone `json:"zones"`    // every zone that has counts, by name
	Fleet    string          `json:"fleet"`    // normal, or full: no zone has a rate
	Granted  []string        `json:"granted"`  // nodes that got a permit, in the order of their requests
	Patience []string        `json:"patience"` // nodes whose patience has ended: they leave the queue for the trickle
	Held     []Held          `json:"held"`     // requests that stay, in their order
}

// Zone is a zone at one line.
type Zone struct {
	Members int              `json:"members"` // at least as many as want a soft stop
	Wanting int              `json:"wanting"` // members that want a soft stop
	State   fleet.State      `json:"state"`   // normal, partial or full
	Rate    fleet.Millionths `json:"rate"`    // permits per second
}

// Held is a request that was not granted.
type Held struct {
	Node   string `json:"node"`   // name of the node
	Reason string `json:"reason"` // why it was not granted
}

// Run decides every line of a trace and writes one JSON value per line to out.
func Run(ctx context.Context, r fleet.Rates, in io.Reader, out io.Writer) (Summary, error) {
	var sum Summary
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	lines, s := NewReader(in), newSimulation(r)
	for {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) && sum.Lines == 0 {
			return sum, errors.New("read trace: no line in it")
		}
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return sum, err
		}
		d, err := s.decide(l, &sum)
		if err != nil {
			return sum, lines.wrap(err)
		}
		if err := enc.Encode(d); err != nil {
			return sum, fmt.Errorf("write decision: %w", err)
		}
	}
}

// simulation is a fleet in virtual time.
type simulation struct {
	rates     fleet.Rates
	view      fleet.View
	zones     map[string]time.Duration // when the slot of a zone is free
	workloads map[string]time.Duration // when the slot of a workload is free
	queue     []queued                 // in the order of granting
}

type queued struct {
	Request
	at time.Duration
}

func newSimulation(r fleet.Rates) *simulation {
	return &simulation{
		rates: r, view: fleet.View{Zones: map[string]fleet.Zone{}},
		zones: map[string]time.Duration{}, workloads: map[string]time.Duration{},
	}
}

// decide makes the decision on a line, and adds it to a summary.
func (s *simulation) decide(l Line, sum *Summary) (Decision, error) {
	now := time.Duration(l.At)
	d := Decision{At: l.At, Zones: map[string]Zone{}, Fleet: "normal", Granted: []string{}, Patience: []string{}, Held: []Held{}}
	s.count(l)
	sum.begin(now)
	s.queue = slices.DeleteFunc(s.queue, func(q queued) bool {
		over := now-q.at >= s.rates.Patience
		if over {
			d.Patience = append(d.Patience, q.Node)
			sum.add(now, q, outOfPatience)
		}
		return over
	})
	withdrawn := map[string]bool{}
	for _, node := range l.Withdraw {
		withdrawn[node] = true
	}
	s.queue = slices.DeleteFunc(s.queue, func(q queued) bool { return withdrawn[q.Node] })
	if err := s.enqueue(now, l.Requests); err != nil {
		return d, err
	}
	s.queue = slices.DeleteFunc(s.queue, func(q queued) bool {
		permitted, denial := s.rates.Decide(s.view, q.Zone, q.Workload, fleet.Slots{Zone: s.zones[q.Zone] - now, Workload: s.workloads[q.Workload] - now})
		if !permitted {
			d.Held = append(d.Held, Held{q.Node, denial.Reason})
			return false
		}
		s.zones[q.Zone] = now + fleet.Slot(s.rates.Of(s.view, q.Zone))
		s.workloads[q.Workload] = now + s.rates.WorkloadInterval
		d.Granted = append(d.Granted, q.Node)
		sum.add(now, q, granted)
		return true
	})
	for name, z := range s.view.Zones {
		d.Zones[name] = Zone{z.Size(), z.Wanting, s.rates.State(z), s.rates.Of(s.view, name)}
	}
	if s.rates.FleetFull(s.view.Zones) {
		d.Fleet = "full"
	}
	sum.Waiting = len(s.queue)
	return d, nil
}

// count takes the counts of a line.
func (s *simulation) count(l Line) {
	for name, n := range l.Members {
		z := s.view.Zones[name]
		z.Members = n
		s.view.Zones[name] = z
	}
	for name, n := range l.Wanting {
		z := s.view.Zones[name]
		z.Wanting = n
		s.view.Zones[name] = z
	}
}

// enqueue adds requests to the queue. A request that is repeated keeps its place.
func (s *simulation) enqueue(now time.Duration, requests []Request) error {
	waiting := map[string]Request{}
	for _, q := range s.queue {
		waiting[q.Node] = q.Request
	}
	for i, r := range requests {
		if old, ok := waiting[r.Node]; ok && old != r {
			return fmt.Errorf("requests[%d]: node %s waits for workload %s in zone %q: withdraw that first", i, r.Node, old.Workload, old.Zone)
		} else if ok {
			continue
		}
		waiting[r.Node] = r
		s.queue = append(s.queue, queued{r, now})
	}
	slices.SortFunc(s.queue, func(a, b queued) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.Node, b.Node)) })
	return nil
}
