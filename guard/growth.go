package guard

import (
	"time"

	"github.com/criguard/criguard/policy"
)

// growthWindow is how far back growth looks.
const growthWindow = time.Minute

// growth follows how fast pods grow, from what is read of them anyway.
type growth struct{ past map[string]sample }

// sample is what a pod used at the start of the running window.
type sample struct {
	at    time.Duration
	value int64
}

// rate is the growth since the start of the window, in bytes per second. It is
// not known for a pod that is seen for the first time.
func (g *growth) rate(id string, memory policy.Amount, now time.Duration) policy.Amount {
	if !memory.Known {
		return policy.Amount{}
	}
	if g.past == nil {
		g.past = map[string]sample{}
	}
	s, ok := g.past[id]
	if !ok || now-s.at > growthWindow {
		g.past[id] = sample{now, memory.Value}
	}
	if dt := now - s.at; ok && dt > 0 {
		return policy.Known(int64(float64(memory.Value-s.value) / dt.Seconds()))
	}
	return policy.Amount{}
}

// forget drops the pods that are not listed any more.
func (g *growth) forget(alive func(id string) bool) {
	for id := range g.past {
		if !alive(id) {
			delete(g.past, id)
		}
	}
}
