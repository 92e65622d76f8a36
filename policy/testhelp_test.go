package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const (
	ki = int64(1) << 10
	mi = int64(1) << 20
	gi = int64(1) << 30
)

// quantity parses a quantity that must be valid.
func quantity(t testing.TB, s string) Quantity {
	t.Helper()
	q, err := ParseQuantity(s)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// table is a table of thresholds by signal, as in the configuration.
type table = map[string]string

// thresholds returns the thresholds of the configuration's tables, in the order of acting.
func thresholds(t testing.TB, hard, soft, grace, minReclaim table) (ts []Threshold) {
	t.Helper()
	for kind, values := range []table{Hard: hard, Soft: soft} {
		for name, value := range values {
			s, err := ParseSignal(name)
			if err != nil {
				t.Fatal(err)
			}
			th := Threshold{Signal: s, Kind: Kind(kind), Value: quantity(t, value)}
			if least := minReclaim[name]; least != "" {
				th.MinReclaim = quantity(t, least)
			}
			if kind == int(Soft) {
				if th.Grace, err = time.ParseDuration(grace[name]); err != nil {
					t.Fatal(err)
				}
			}
			ts = append(ts, th)
		}
	}
	slices.SortFunc(ts, Threshold.Compare)
	return ts
}

// read returns a successful reading.
func read(available, capacity int64) Observation {
	return Observation{Available: available, Capacity: capacity, Status: OK}
}

// one returns observations with a single signal.
func one(s Signal, o Observation) *Observations {
	var obs Observations
	obs[s] = o
	return &obs
}

// watch evaluates over time and keeps the state between rounds.
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

// source returns a random generator with a fixed seed.
func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// lacking returns the shortage of a single hard threshold whose pool lacks that much, without samples.
func lacking(s Signal, deficit int64) Shortage {
	met := Met{Threshold: Threshold{Signal: s}, Due: true, Deficit: deficit, Lack: deficit}
	return Shortage{Due: []Met{met}, Observed: &Observations{}, Samples: &Samples{}}
}
