package hold

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync/atomic"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/lastgood"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// FileName is the file of the hard thresholds that were in force last.
const FileName = "thresholds.json"

// InForce are the hard thresholds that were in force last, in this run or an earlier one. They are kept in the state directory, which
// outlives a reboot, and in the run directory, which is in memory: a restart must not depend on a disk.
type InForce struct {
	run, state rundir.Dir // may be the same
	access     rundir.Access
	hard       atomic.Pointer[config.HardThresholds]
	unsaved    atomic.Bool
}

// Open reads the thresholds of an earlier run. Without a file, or if its disk does not answer until ctx
// ends, none was in force.
func Open(ctx context.Context, run, state rundir.Dir, access rundir.Access) *InForce {
	f := &InForce{run: run, state: state, access: access}
	f.load(ctx, f.state.ReadFile)
	return f
}

func (f *InForce) load(ctx context.Context, read func(string, rundir.Access) ([]byte, error)) {
	known := config.HardThresholds{}
	if f.run != f.state {
		if b, err := f.run.ReadFile(FileName, f.access); err == nil && json.Unmarshal(b, &known) == nil {
			f.hard.Store(&known)
			return
		}
	}
	var text lastgood.Value[[]byte]
	b := text.Get(ctx, func() []byte {
		b, _ := read(FileName, f.access)
		return b
	})
	if json.Unmarshal(b, &known) != nil {
		known = config.HardThresholds{}
	}
	f.hard.Store(&known)
}

// Get returns the thresholds.
func (f *InForce) Get() config.HardThresholds { return *f.hard.Load() }

// Set replaces the thresholds in memory. Save writes them.
func (f *InForce) Set(hard config.HardThresholds) {
	f.hard.Store(&hard)
	f.unsaved.Store(true)
}

// Had reports whether a threshold at least as high as a met one was in force.
func (f *InForce) Had(m api.MetNow) bool {
	if m.Unknown != "" { // and so is the capacity
		v, err := policy.ParseQuantity(m.Value)
		return err == nil && f.Get().Covers(m.Signal, v)
	}
	v, was := f.Get().For(m.Signal, m.Capacity)
	return was && v.Of(m.Capacity) >= m.Amount
}

// Unchecked returns the hard thresholds that may be met, because why returns a reason for which their signals could not
// be read, and that were not in force.
func (f *InForce) Unchecked(hard config.HardThresholds, why func(policy.Signal) error) (all []api.MetNow) {
	for s := range policy.SignalCount {
		_, set := hard[s]
		_, was := f.Get()[s] // it may follow from another one now
		if v, on := hard.For(s, 0); on && (set || was) {
			if err := why(s); err != nil {
				all = append(all, api.MetNow{Signal: s, Value: v.String(), Unknown: err.Error()})
			}
		}
	}
	return slices.DeleteFunc(all, f.Had)
}

// Save writes the thresholds that were set since the last time. The state directory may be on a disk that does not answer.
func (f *InForce) Save() error {
	if !f.unsaved.Swap(false) {
		return nil
	}
	hard := f.Get()
	if f.run != f.state && rundir.Save(f.run, FileName, f.access, hard, !rundir.Synced) != nil {
		_ = os.Remove(f.run.Path(FileName)) // an old one would count
	}
	err := rundir.Save(f.state, FileName, f.access, hard, rundir.Synced)
	if err != nil {
		f.unsaved.Store(true)
	}
	return err
}
