package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/eviction"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Options change what a simulation takes into account.
type Options struct {
	// NoBudget disables the stop budget, the back-off and the breaker, for comparison with the kubelet,
	// which lacks them.
	NoBudget bool
}

// Pass is the result of one line of a trace.
type Pass struct {
	At         api.Duration      `json:"at"`         // time of the line
	Conditions policy.Conditions `json:"conditions"` // conditions that hold
	Met        []string          `json:"met"`        // thresholds that are met, as signal:kind
	Reclaimed  []string          `json:"reclaimed"`  // steps that ran: memory, containers, sandboxes, logs, images
	Stop       *Stop             `json:"stop"`       // null when nothing is stopped
	Held       string            `json:"held"`       // why a stop was held back
	Need       *Need             `json:"need"`       // null when nothing is due
	Admit      map[string]bool   `json:"admit"`      // whether a new pod is admitted, by QoS
}

// Need is what a simulated decision rests on.
type Need struct {
	Pool        policy.Pool `json:"pool"`                     // memory, pid, nodefs bytes, nodefs inodes, or the same of imagefs or containerfs
	Deficit     int64       `json:"deficit" unit:"pool"`      // to the threshold or, inside the minimum reclaim, to the target
	Fill        int64       `json:"fill" unit:"pool"`         // how fast the signal falls, per second
	OutsideFill int64       `json:"outside_fill" unit:"pool"` // the part of fill that the growth of the unprotected pods does not explain
	Need        int64       `json:"need" unit:"pool"`         // amount that has to come back when a stop takes effect
	Helps       int64       `json:"helps" unit:"pool"`        // the smallest amount that a stop must give back to help
	Attainable  bool        `json:"attainable"`               // stopping pods brings relief for at least 10 s
	Culprit     string      `json:"culprit"`                  // the pod that fills the pool; empty = none
}

// Stop is the stop of one simulated pass.
type Stop struct {
	Pod    string       `json:"pod"`    // namespace/name
	Signal string       `json:"signal"` // what it was stopped for
	Kind   string       `json:"kind"`   // hard, soft, limit or admission
	Grace  api.Duration `json:"grace"`  // grace period
	Reason string       `json:"reason"` // why this pod
}

// start is the time since boot at which a trace starts, so that pods created earlier have a positive
// creation time.
const start = 365 * 24 * time.Hour

// Run makes exactly one pass per line of a trace, in virtual time, and writes one JSON value per line to
// out. It always enforces, whatever the configuration's mode, because a simulation touches nothing.
func Run(ctx context.Context, cfg config.Config, in io.Reader, out io.Writer, opt Options) (Summary, error) {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	sums, err := run(ctx, []config.Config{cfg}, in, opt, func(p *Pass) error {
		if err := enc.Encode(p); err != nil {
			return fmt.Errorf("write simulated pass: %w", err)
		}
		return nil
	})
	return sums[0], err
}

// Compare makes the passes of several configurations over the same trace, as Run does.
func Compare(ctx context.Context, cfgs []config.Config, in io.Reader, opt Options) ([]Summary, error) {
	return run(ctx, cfgs, in, opt, func(*Pass) error { return nil })
}

// run makes a pass of each configuration per line. It calls each with every pass.
func run(ctx context.Context, cfgs []config.Config, in io.Reader, opt Options, each func(*Pass) error) ([]Summary, error) {
	sums := make([]Summary, len(cfgs))
	var sims []*simulation
	for _, cfg := range cfgs {
		sims = append(sims, newSimulation(cfg, opt))
	}
	lines := trace.NewReader(in)
	for empty := true; ; empty = false {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) && empty {
			return sums, errors.New("read trace: no line in it")
		}
		if errors.Is(err, io.EOF) {
			return sums, nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return sums, err
		}
		for i, s := range sims {
			if !l.Began.IsZero() {
				sums[i].Began = l.Began
			}
			p := s.pass(ctx, l)
			shown := simulated(l.At, p, s.guard.Snapshot().Pressure, s.node.steps)
			sums[i].add(&shown, p.HeldBy)
			if err := each(&shown); err != nil {
				return sums, err
			}
		}
	}
}

const bootID = "simulation"

// simulation is the service's Manager on the node of a trace.
type simulation struct {
	node  *Node
	guard *eviction.Manager
}

func newSimulation(cfg config.Config, opt Options) *simulation {
	cfg.Mode = config.ModeEnforce
	if opt.NoBudget {
		cfg.Budget, cfg.Backoff = cfg.Budget.Off(), cfg.Backoff.Off()
	}
	n := NewNode(cfg)
	g := eviction.New(cfg, n, n, n, n, nil, policy.NewRestraint(bootID))
	g.FollowTrace() // between two lines of a trace by hand, the state of the first one lasts
	return &simulation{n, g}
}

// pass moves the node to a line and makes a pass.
func (s *simulation) pass(ctx context.Context, l trace.Line) api.Pass {
	s.node.Advance(l)
	if l.Recorded {
		// A recorder writes a line every few seconds. In a longer gap the node was suspended, and the service does not count
		// that for grace periods.
		s.guard.SetConfig(s.node.cfg)
	}
	return s.guard.Pass(ctx, "trace")
}

func simulated(at api.Duration, p api.Pass, pr policy.Pressure, steps []reclaim.Step) Pass {
	s := Pass{
		At: at, Conditions: pr.Conditions, Met: []string{}, Reclaimed: []string{}, Held: p.Held,
		Admit: map[string]bool{},
	}
	for _, step := range steps {
		s.Reclaimed = append(s.Reclaimed, string(step))
	}
	for _, m := range pr.Met {
		s.Met = append(s.Met, m.Threshold.String())
	}
	for _, q := range []policy.QoS{policy.Guaranteed, policy.Burstable, policy.BestEffort} {
		s.Admit[q.String()] = policy.Admit(pr.Conditions, q, false)
	}
	if n := p.Need; n != nil {
		s.Need = &Need{n.Pool, n.Deficit, n.Fill, n.OutsideFill, n.Need, n.Helps, n.Attainable, n.Culprit}
	}
	if p.Stop != nil {
		s.Stop = &Stop{p.Stop.Pod, p.Stop.Signal, p.Stop.Kind, p.Stop.Grace, p.Stop.Reason}
	}
	return s
}
