package world

import (
	"math"
	"slices"
	"time"
)

// taskLimitsOf has an operator lower the limit of the node's or the pods' tasks, perhaps below those that run, for a while or for
// good, in one of eight seeds. It has dice of its own.
func taskLimitsOf(w *World, seed uint64, length time.Duration) {
	d := diceOf(seed, 47)
	if !d.oneIn(8) {
		return
	}
	ofPods, share := d.oneIn(2), 0.3+1.2*d.Float64()
	at := d.at(5*time.Second, length/2)
	w.At(at, func(w *World) {
		limit := int64(float64(w.podsTasks()) * share)
		if ofPods {
			w.limitTasks(pidMax, limit)
		} else {
			w.limitTasks(nodeTasks+limit, 0)
		}
	})
	if d.oneIn(2) {
		w.At(at+d.at(time.Second, time.Minute), func(w *World) { w.limitTasks(pidMax, 0) })
	}
}

// limitTasks sets the limits of the tasks of the node and of the pods; 0 = none for the pods. Processes that run go on. How fast
// tasks become fewer is not known across that, so neither is which pod uses them up.
func (w *World) limitTasks(node, pods int64) {
	w.logf("the node may have %d tasks, its pods %d", node, pods)
	w.taskLimit, w.podTasks, w.sampledFrom = node, pods, w.Now()+firstSample
	if pods > 0 {
		node = min(node, pods)
		w.write(w.files[w.tasks(podsCgroup, "pids.max")], "%d\n", pods)
	} else {
		w.write(w.files[w.tasks(podsCgroup, "pids.max")], "max\n")
	}
	w.pids = int64(math.Ceil(float64(node) / 20))
}

// fewTasks is below how many tasks one that comes or goes outside the listed pods decides whether a stop was fruitless.
const fewTasks = 20

// inspectTasks checks that a pod is stopped for tasks, if the pods have enough of them.
func (c *check) inspectTasks(w *World) {
	free := w.freeTasks()
	if free+1 >= c.pids || !c.mayStop(w) {
		c.fewAt = w.Now()
		return
	}
	for _, p := range w.pods {
		if p.runs() && !p.protected {
			free += p.tasks
		}
	}
	// What counts for the breaker: a stop that brought nothing or next to nothing, or whose tasks a protected pod takes.
	fruitless := slices.ContainsFunc(c.kills, func(p *pod) bool {
		return (p.linger > 0 || p.few) && p.order.pool() == "tasks" && w.time()-p.stoppedAt < backoffReset
	}) || slices.ContainsFunc(w.pods, func(p *pod) bool { return p.protected && p.forks > 0 && p.runs() })
	if free < c.pids || fruitless || c.pids < fewTasks {
		c.fewAt = w.Now()
	} else if w.Now()-c.fewAt > budgetEvery+mayFollow {
		c.fewAt = w.Now()
		w.violate("tasks have been short for %v, and no pod was stopped", budgetEvery+mayFollow)
	}
}
