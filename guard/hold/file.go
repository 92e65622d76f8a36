package hold

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/lastgood"
	"github.com/criguard/criguard/guard/rundir"
)

// FileName is the file of the hard thresholds that were in force last.
const FileName = "thresholds.json"

// InForce are the hard thresholds that were in force last, in this run or an earlier one.
type InForce struct {
	dir     rundir.Dir
	access  rundir.Access
	hard    atomic.Pointer[config.HardThresholds]
	unsaved atomic.Bool
}

// Open reads the thresholds of an earlier run from a directory. Without a file, or if its disk does not answer until ctx
// ends, none was in force.
func Open(ctx context.Context, dir string, access rundir.Access) *InForce {
	f := &InForce{dir: rundir.Dir(dir), access: access}
	f.load(ctx, f.dir.ReadFile)
	return f
}

func (f *InForce) load(ctx context.Context, read func(string, rundir.Access) ([]byte, error)) {
	var text lastgood.Value[[]byte]
	b := text.Get(ctx, func() []byte {
		b, _ := read(FileName, f.access)
		return b
	})
	known := config.HardThresholds{}
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
	v, was := f.Get().For(m.Signal, m.Capacity)
	return was && v.Of(m.Capacity) >= m.Amount
}

// Save writes the thresholds that were set since the last time. The directory may be on a disk that does not answer.
func (f *InForce) Save() error {
	if !f.unsaved.Swap(false) {
		return nil
	}
	err := rundir.Save(f.dir, FileName, f.access, f.Get(), rundir.Synced)
	if err != nil {
		f.unsaved.Store(true)
	}
	return err
}
