package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// SimulateOptions change what a simulation takes into account.
type SimulateOptions struct {
	// NoBudget switches the stop budget, the back-off and the breaker off, for
	// comparing with the kubelet, which has none.
	NoBudget bool
}

// SimulatedPass is what one line of a trace comes to.
type SimulatedPass struct {
	At         TraceDuration   `json:"at"`
	Conditions []string        `json:"conditions"`
	Met        []string        `json:"met"`
	Reclaimed  []string        `json:"reclaimed"`
	Stop       *SimulatedStop  `json:"stop"`
	Held       string          `json:"held"`
	Admit      map[string]bool `json:"admit"`
}

// SimulatedStop is the stop of one simulated pass.
type SimulatedStop struct {
	Pod    string        `json:"pod"`
	Signal string        `json:"signal"`
	Kind   string        `json:"kind"`
	Grace  TraceDuration `json:"grace"`
	Reason string        `json:"reason"`
}

// simulationStart is the virtual time since boot at which a trace starts: pods
// that were created before it have a place on the clock.
const simulationStart = 365 * 24 * time.Hour

// Simulate runs the pass over a trace in virtual time, exactly one pass per line,
// and writes one JSON value per line to out. It always enforces, whatever the
// configuration's mode: a simulation touches nothing.
func Simulate(ctx context.Context, cfg Config, trace io.Reader, out io.Writer, opt SimulateOptions) error {
	cfg.Mode = ModeEnforce
	if opt.NoBudget {
		cfg.Budget, cfg.Backoff = cfg.Budget.Off(), cfg.Backoff.Off()
	}
	n := newTraceNode(cfg)
	g := New(cfg, n, n, n, n, policy.NewRestraint(simulationBoot))
	g.settings.UnseenAtMost = 0 // between two lines of a trace all is as the first says
	lines := NewTraceReader(trace)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for empty := true; ; empty = false {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) && empty {
			return errors.New("read trace: no line in it")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		n.advance(l)
		p := g.Pass(ctx, "trace")
		if err := enc.Encode(simulated(l.At, p, g.pressure, n.takeSteps())); err != nil {
			return fmt.Errorf("write simulated pass: %w", err)
		}
	}
}

const simulationBoot = "simulation"

func simulated(at TraceDuration, p Pass, pr policy.Pressure, steps []reclaim.Step) SimulatedPass {
	s := SimulatedPass{
		At: at, Conditions: conditionNames(pr.Conditions), Met: []string{}, Reclaimed: []string{}, Held: p.Held,
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
	if p.Stop != nil {
		s.Stop = &SimulatedStop{p.Stop.Pod, p.Stop.Signal, p.Stop.Kind, TraceDuration(p.Stop.Grace), p.Stop.Reason}
	}
	return s
}

// conditionNames lists conditions; never nil, so that JSON has [].
func conditionNames(c policy.Conditions) []string {
	names := []string{}
	for _, c := range c.List() {
		names = append(names, c.String())
	}
	return names
}
