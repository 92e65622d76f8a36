package world

import (
	"fmt"
	"slices"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

// garbage is what a pod has left in the runtime: dead containers or dead sandboxes, in the order of their attempts.
type garbage struct {
	pod  *pod // whose containers they are; nil = they are sandboxes of a pod that has ended
	ids  []string
	made time.Duration // when it was left
}

// garbageOf leaves dead sandboxes and containers in the runtime, in one of four seeds: from before the world began, or while it goes
// on. It has dice of its own.
func garbageOf(w *World, seed uint64, length time.Duration) {
	d := diceOf(seed, 79)
	if !d.oneIn(4) {
		return
	}
	for i := range d.between(1, 10) {
		at := pick(d, 0, d.at(time.Second, length))
		w.At(at, func(w *World) {
			if w.away {
				return
			}
			if g := w.leaveGarbage(d, int(i)); g != nil {
				w.garbage = append(w.garbage, g)
			}
		})
	}
	w.At(time.Second, (*World).inspectGarbage)
}

// leaveGarbage leaves some of one pod. It returns nil if no pod runs.
func (w *World) leaveGarbage(d dice, number int) *garbage {
	g, attempts := &garbage{made: w.Now()}, uint32(d.between(1, 4)) //nolint:gosec // few
	age := d.at(0, 10*time.Minute)
	if d.oneIn(2) {
		if g.pod = someone(w, d); g.pod == nil {
			return nil
		}
	}
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", number)
	for attempt := range attempts {
		created := time.Now().Add(-age).Add(time.Duration(attempt) * time.Millisecond)
		if g.pod != nil {
			c := critest.ContainerSpec{Name: fmt.Sprintf("init-%d", number), Attempt: attempt, State: cri.Exited, CreatedAt: created}
			g.ids = append(g.ids, w.runtime.AddContainer(g.pod.ID, c).ID)
			continue
		}
		p := w.runtime.AddPod(critest.PodSpec{Name: fmt.Sprintf("gone-%d", number), UID: uid, Attempt: attempt, NotReady: true, CreatedAt: created})
		g.ids = append(g.ids, p.ID)
	}
	return g
}

// How long the service may need to collect garbage: once a minute, it removes what is a minute old. How often the world looks.
const (
	garbageStays = 2*time.Minute + seesAgain
	garbageEvery = 5 * time.Second
)

// inspectGarbage checks that the service removes of each what a newer attempt has replaced, and keeps the newest: a runtime does not
// say whether a kubelet will start it again, or somebody still wants to look at it. A reclaim removes that, too.
func (w *World) inspectGarbage() {
	w.At(w.Now()+garbageEvery, (*World).inspectGarbage)
	quiet := w.service != nil && !w.observe && w.Now()-max(w.service.began, w.blindUntil, w.pausedUntil, w.networkUntil) > garbageStays
	_, pids := w.metAt["tasks"]
	w.garbage = slices.DeleteFunc(w.garbage, func(g *garbage) (said bool) {
		if g.pod != nil && (!g.pod.runs() || g.pod.hangs) {
			return false
		}
		newest := len(g.ids) - 1
		stays := slices.IndexFunc(g.ids[:newest], w.runtime.Has)
		if said = quiet && w.Now()-g.made > garbageStays && stays >= 0; said {
			w.violate("attempt %d of %d of %s is still there", stays, len(g.ids), g)
		} else if said = w.free == (space{}) && !pids && !w.runtime.Has(g.ids[newest]); said {
			w.violate("the newest attempt of %s was removed", g)
		}
		return said
	})
}

func (g *garbage) String() string {
	if g.pod != nil {
		return fmt.Sprintf("a dead container of %s", g.pod)
	}
	return "a dead sandbox"
}
