package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet/client/agenttest"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/test/lab"
)

// measureFleet measures hard stops with the fleet off and with agents of all kinds, and what the fleet costs.
func measureFleet(ctx context.Context, b *bench) error {
	if err := b.stage(ctx); err != nil {
		return err
	}
	return errors.Join(b.measureFleetLatency(ctx), b.measureFootprint(ctx))
}

// fleetOff is the case that the others are compared with.
const fleetOff = "fleet off"

// fleetCase is a behavior of the fleet's agent. In each case, a soft threshold of the pool is met and its stop held:
// with the fleet off by its grace period, otherwise by the fleet.
type fleetCase struct {
	name  string
	serve func(net.Conn)        // nil = there is no agent
	held  func(h api.Hold) bool // nil = the stop is not due
	busy  bool                  // a hog begins when the guard has just sent a request, which takes up to a second
}

// fleetCases returns the cases, first the one without a fleet.
func fleetCases() []fleetCase {
	by := func(detail string, reasons ...string) func(api.Hold) bool {
		return func(h api.Hold) bool { return slices.Contains(reasons, h.Reason) && strings.Contains(h.Detail, detail) }
	}
	return []fleetCase{
		{fleetOff, nil, nil, false},
		{"honest agent", agenttest.Answer(func() string { return agenttest.Denied }), by("partial", api.HeldFleet), false},
		{"alone, no agent", nil, by("alone", api.HeldFleet), false},
		{"agent hangs", eachInTurn(agenttest.Hangs()), by("", api.HeldAsking, api.HeldFleet), true},
		{"agent floods", eachInTurn(agenttest.Floods()), by("", api.HeldAsking, api.HeldFleet), true},
		{"agent lies", lying(), by("", api.HeldAsking, api.HeldFleet), false},
		{"agent fails", eachInTurn(agenttest.Failures()), by("", api.HeldAsking, api.HeldFleet), false},
	}
}

// rules returns the configuration of the fleet and of a soft threshold of so many bytes.
func (c *fleetCase) rules(soft int64) string {
	grace := "1s"
	if c.name == fleetOff {
		grace = "1h"
	}
	return fmt.Sprintf("[fleet]\nenabled = %t\n[eviction.soft]\n\"memory.available\" = \"%d\"\n[eviction.soft_grace_period]\n\"memory.available\" = %q\n",
		c.name != fleetOff, soft, grace)
}

// measureFleetLatency lets hogs leak in each case in turn, in another order each time.
func (b *bench) measureFleetLatency(ctx context.Context) (err error) {
	remove, err := b.ballast(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	g, err := b.startConfigured(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if err := g.holds(ctx, ballastMiB*mib); err != nil {
		return err
	}
	agent := &fakeAgent{path: rundir.Dir(g.dir).FleetSocket()}
	defer func() { err = errors.Join(err, agent.set(nil)) }()
	cases := fleetCases()
	rows := make([]latency, len(cases))
	for i := range cases {
		rows[i] = latency{Guard: g.name(), Case: cases[i].name, Rate: goalRate, HeadroomMiB: b.headroom}
	}
	tries := max(b.tries/2, 1)
	b.say("%s: %d tries in each of %d cases of the fleet", g.name(), tries, len(cases))
	for range tries {
		for _, i := range rand.Perm(len(cases)) {
			if err := b.tryRepeatedly(ctx, &fleetGuard{g, agent, cases[i]}, &rows[i], trouble{}); err != nil {
				return fmt.Errorf("%s: %w", cases[i].name, err)
			}
		}
	}
	for i := range rows {
		rows[i].finish()
		b.say("  %s: %s", rows[i].Case, rows[i].line())
	}
	b.report.Fleet = rows
	return nil
}

// Amounts of the soft threshold that is met meanwhile, in MiB: the ballast, which its stop would give back, and how far
// above what is available the threshold is.
const (
	ballastMiB = 256
	softAbove  = 64
)

// ballast starts a pod that makes relief at the soft threshold attainable. Its request keeps it from being the victim
// of a hard stop.
func (b *bench) ballast(ctx context.Context) (remove func() error, err error) {
	pod, err := b.lab.RunPod(ctx, lab.PodSpec{
		Namespace: "bench", Name: "ballast", Annotations: withoutKubelet(), MemoryRequest: 2 * ballastMiB * mib,
		Containers: []lab.ContainerSpec{{Name: "main", Args: []string{"hog", "-mib", fmt.Sprint(ballastMiB)}}},
	})
	if err != nil {
		return nil, err
	}
	n := len(b.pods)
	b.pods = append(b.pods, pod)
	return func() error {
		pod := b.pods[n]
		b.pods = b.pods[:n]
		return b.lab.RemovePod(context.WithoutCancel(ctx), pod)
	}, nil
}

// holds waits until a pod uses so many bytes.
func (g *criguard) holds(ctx context.Context, size int64) error {
	return until(ctx, "the ballast to be taken", func() (bool, error) {
		r, err := g.client.Rank(ctx, policy.MemoryAvailable)
		for i := range r.Pods {
			if r.Pods[i].Usage >= size {
				return true, err
			}
		}
		return false, err
	})
}

// fleetGuard is a criguard in a fleet.
type fleetGuard struct {
	*criguard
	agent *fakeAgent
	of    fleetCase
}

// arm also puts the soft threshold in force, and waits until its stop is held as the case says.
func (g *fleetGuard) arm(ctx context.Context, level int64) error {
	g.more = g.of.rules(level + (g.bench.headroom+softAbove)*mib)
	if err := g.agent.set(g.of.serve); err != nil {
		return err
	}
	if err := g.criguard.arm(ctx, level); err != nil {
		return err
	}
	if err := g.until(ctx, "the soft threshold to be met", softIsMet); err != nil || g.of.held == nil {
		return err
	}
	// The status keeps showing what held an earlier stop of the threshold; the ranking does not.
	err := until(ctx, "the soft stop to be held", func() (bool, error) {
		r, err := g.client.Rank(ctx, policy.MemoryAvailable)
		return r.Held != nil && g.of.held(*r.Held), err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, g.logged())
	}
	if !g.of.busy {
		return nil
	}
	calls := g.agent.calls.Load()
	return until(ctx, "a request of the guard", func() (bool, error) { return g.agent.calls.Load() > calls, nil })
}

// softIsMet reports whether a soft threshold for memory is met.
func softIsMet(st *api.Status) bool {
	for _, s := range st.Signals {
		if s.Signal == policy.MemoryAvailable {
			return slices.ContainsFunc(s.Thresholds, func(t api.ThresholdStatus) bool { return t.Kind == policy.Soft.String() && t.Met })
		}
	}
	return false
}

// disarm also leaves the fleet, so that the next case begins without a history.
func (g *fleetGuard) disarm(ctx context.Context) error {
	g.more = ""
	return errors.Join(g.criguard.disarm(ctx), g.agent.set(nil))
}

func (r *report) printFleet(w io.Writer) {
	if len(r.Fleet) > 0 {
		title(w, fmt.Sprintf("Hard stops at %d MiB/s with a fleet (milliseconds after the crossing, median / p99)", goalRate))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "case\tgrew last\trelieved\tdead\tmedian to off\twrong\ttries\t")
		for i := range r.Fleet {
			l := &r.Fleet[i]
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.2f\t%d\t%d\t\n", l.Case, l.Killed, l.Relieved, l.Dead, l.Dead.Median/r.Fleet[0].Dead.Median, l.Wrong, l.Dead.N)
		}
		_ = t.Flush()
	}
	if f := r.Footprint; f != nil {
		title(w, "Memory with a fleet (MiB, anonymous in brackets)")
		fmt.Fprintf(w, "criguard run, fleet off %s, on %s; criguard fleet agent %s; the binary %.1f MiB\n", f.Off, f.On, f.Agent, f.BinaryMiB)
	}
}
