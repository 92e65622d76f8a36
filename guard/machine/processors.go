package machine

import (
	"os"
	"runtime"
	"time"
)

// calmFor is how long no threshold may have been near before one processor is enough: a change stops all goroutines for a moment.
const calmFor = time.Minute

// Processors lets goroutines use one processor while no threshold is near. With more, the scheduler wakes a second thread each
// time a timer fires, to look for work that an idle service does not have.
type Processors struct {
	use  func(n int) (before int)
	all  int           // how many to use otherwise; 0 = they are in use
	near time.Duration // when a threshold was near last, since boot
}

// NewProcessors returns the processors of a service that starts now. use is a Machine's Processors.
func NewProcessors(use func(n int) (before int), now time.Duration) Processors {
	return Processors{use: use, near: now}
}

// See notes whether no threshold is near.
func (p *Processors) See(calm bool, now time.Duration) {
	switch {
	case !calm:
		p.near = now
		if p.all > 0 {
			go p.use(p.all) // it waits for the end of a garbage collection, as no pass may
			p.all = 0
		}
	case p.all == 0 && now-p.near >= calmFor:
		p.all = p.use(1)
	}
}

// useProcessors is runtime.GOMAXPROCS, but after one processor, the runtime chooses again how many it uses, unless the
// environment says so: a number that is set does not follow the CPU limit of the service's cgroup.
func useProcessors(n int) (before int) {
	if n == 1 || os.Getenv("GOMAXPROCS") != "" {
		return runtime.GOMAXPROCS(n)
	}
	before = runtime.GOMAXPROCS(0)
	runtime.SetDefaultGOMAXPROCS()
	return before
}
