package guard

import (
	"path/filepath"
	"time"

	"github.com/criguard/criguard/guard/gc"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/rundir"
)

// sweepAge is the minimum age of a temporary file that a sweep treats as left by a crash; a normal write
// takes milliseconds. Temporary files in a locked directory are never in use.
const sweepAge = 10 * time.Minute

// sweep removes temporary files of earlier runs. The run directory belongs to this process alone. The history
// may be on a stalled disk, so its sweep runs in the background.
func (s *Service) sweep() {
	run, cfg := string(s.opt.Dir), s.opt.Config
	cfg.Dir = s.opt.Dir
	saved := cfg.HistoryDir()
	rundir.SweepTemporary(run, 0, time.Now())
	rundir.SweepTemporary(filepath.Join(run, history.WindowDir), 0, time.Now())
	if saved != run {
		go func() {
			rundir.SweepTemporary(saved, sweepAge, time.Now())
			rundir.SweepTemporary(filepath.Join(saved, history.WindowDir), sweepAge, time.Now())
		}()
	}
	go func() {
		if state := gc.StateDir(&cfg); state != saved {
			rundir.SweepTemporary(state, sweepAge, time.Now())
		}
	}()
}
