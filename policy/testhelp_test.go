package policy

import (
	"math/rand/v2"
	"testing"
	"time"
)

const (
	ki = int64(1) << 10
	mi = int64(1) << 20
	gi = int64(1) << 30
)

// quantity parses what a test is certain of.
func quantity(t testing.TB, s string) Quantity {
	t.Helper()
	q, err := ParseQuantity(s)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// read is a reading that worked.
func read(available, capacity int64) Observation {
	return Observation{Available: available, Capacity: capacity, Status: OK}
}

// one is observations with a single signal in them.
func one(s Signal, o Observation) *Observations {
	var obs Observations
	obs[s] = o
	return &obs
}

// watch evaluates over time and keeps the state between the rounds.
type watch struct {
	state    State
	ts       []Threshold
	settings Settings
	pressure Pressure
}

func (w *watch) at(now time.Duration, obs *Observations) Pressure {
	w.state, w.pressure = Evaluate(w.state, w.ts, w.settings, obs, now)
	return w.pressure
}

func (w *watch) met() []string {
	names := []string{}
	for _, m := range w.pressure.Met {
		names = append(names, m.Threshold.String())
	}
	return names
}

func (w *watch) due() []string {
	names := []string{}
	for _, m := range w.pressure.Met {
		if m.Due {
			names = append(names, m.Threshold.String())
		}
	}
	return names
}

func ids(ranked []Ranked) []string {
	list := make([]string, len(ranked))
	for i := range ranked {
		list[i] = ranked[i].ID
	}
	return list
}

// source is a generator that gives the same numbers in every run.
func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }
