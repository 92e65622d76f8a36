package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/criguard/criguard/cri"
)

// Deadlines of one removal. A client may have shorter ones of its own.
const (
	removeFor      = 3 * time.Minute // a network plugin may need two to tear down a sandbox
	removeImageFor = 5 * time.Minute // an interrupted removal leaves orphaned data
	// stopDeadFor is the grace period of a container in an unknown state before its removal.
	stopDeadFor = 10 * time.Second
	// logsWait limits the wait for reading the log directory, and for one removal there. Either then
	// continues in the background, since all other collections would wait for it, too.
	logsWait = 10 * time.Second
	// maxTimeouts in a row end a step: the runtime hangs, not one removal.
	maxTimeouts = 2
)

const (
	whyMet   = "the target is met"
	whyGone  = "gone already"
	whyStuck = "its last removal failed"
	// whyYields: what it waited for began, and is repeated from the start.
	whyYields = "a reclaim under pressure needs the turn"
	// whyMayRun: the runtime has lost track of the container.
	whyMayRun = "may run: its state is unknown, and its sandbox is ready"
)

// job is one step in progress.
type job struct {
	*Collector
	plan     Plan
	gauge    *gauge
	replaced bool // select the containers that a newer attempt has replaced
	report   Report
	timeouts int
	settled  bool // nothing was removed since the last wait for free space
	ended    bool // the runtime is gone or hangs
	// pretended holds what earlier steps of a dry run would have removed, by id.
	pretended map[string]bool
}

// run runs one step; unmeasured is the error of measuring the target, if any.
func (j *job) run(ctx context.Context, unmeasured error) Report {
	started := time.Now()
	switch {
	case unmeasured != nil:
		j.report.fail(Item{}, unmeasured)
	case j.report.Step == StepMemory:
		j.reclaimMemory(ctx)
	case j.report.Step == StepContainers:
		j.collectContainers(ctx)
	case j.report.Step == StepSandboxes:
		j.collectSandboxes(ctx)
	case j.report.Step == StepLogs:
		j.collectLogs(ctx)
	case j.report.Step == StepImages:
		j.collectImages(ctx)
	}
	j.finish(ctx)
	r := j.report
	for _, items := range [][]Item{r.Removed, r.Kept} {
		for i := range items {
			items[i].round()
		}
	}
	r.Met, r.Took = j.gauge.met(), Duration(time.Since(started))
	r.AtMost = r.Step == StepImages && j.gauge.isUnsure() && len(r.Removed) > 0
	if !j.plan.DryRun {
		r.Freed, r.FreedInodes = j.gauge.freed()
	}
	return r
}

// inventory lists the containers and sandboxes. For a dry run, which endangers nothing, a recent listing will do, without
// those that it pretends to have removed.
func (j *job) inventory(ctx context.Context) (inventory, error) {
	if j.plan.DryRun {
		return j.recent(ctx)
	}
	return j.Collector.inventory(ctx)
}

// recent does the same with a recent listing, for the selection.
func (j *job) recent(ctx context.Context) (inventory, error) {
	inv, err := j.Collector.recent(ctx)
	return j.pretend(inv), err
}

// pretend leaves out the objects that a dry run pretends to have removed.
func (j *job) pretend(inv inventory) inventory {
	if !j.plan.DryRun {
		return inv
	}
	return inventory{
		slices.DeleteFunc(slices.Clone(inv.Containers), func(c cri.Container) bool { return j.pretended[c.ID] }),
		slices.DeleteFunc(slices.Clone(inv.Sandboxes), func(b cri.Sandbox) bool { return j.pretended[b.ID] }),
	}
}

// over reports whether this step can remove nothing more.
func (j *job) over(ctx context.Context) bool {
	return j.ended || j.gauge.err != nil || ctx.Err() != nil || j.plan.isEnough()
}

// each removes items one after another until the target is met. Items that hung recently come last: in
// every run, they would end the step before the others had their turn. So do those that the runtime reported as unavailable, as
// containerd does if only the shim of one sandbox is. check inspects an item again and returns why it stays after all; "" = remove it.
func (j *job) each(ctx context.Context, items []Item,
	check func(context.Context, Item) (string, error), remove func(context.Context, Item) error,
) {
	stuck := j.stuckAt(j.clock().Boot)
	items = slices.SortedStableFunc(slices.Values(items), func(a, b Item) int { return boolFirst(!stuck[a.ID], !stuck[b.ID]) })
	for i, it := range items {
		if j.over(ctx) {
			return
		}
		if j.gauge.met() {
			for _, left := range items[i:] {
				j.keep(left, whyMet)
			}
			return
		}
		why, err := check(ctx, it)
		if err == nil && why == "" && !j.plan.DryRun {
			if err := j.gauge.begin(ctx); err != nil {
				j.report.fail(Item{}, err)
				return
			}
			call, cancel := context.WithTimeout(ctx, removeFor)
			j.forget()
			err = remove(call, it)
			cancel()
		}
		if errors.Is(err, cri.ErrRefused) && it.Kind == KindContainer && j.isUnlisted(ctx, it.ID) {
			why, err = whyGone, nil
		}
		switch {
		case errors.Is(err, context.Canceled) && j.plan.isEnough():
			j.keep(it, whyYields)
		case err != nil:
			if (isTimeout(err) || errors.Is(err, cri.ErrUnavailable)) && ctx.Err() == nil {
				j.noteStuck(it.ID)
			}
			j.failed(it, err)
		case why != "":
			j.keep(it, why)
		default:
			j.removed(ctx, it)
		}
	}
}

// isUnlisted reports whether the runtime no longer lists a container. If something else has removed it, cri-dockerd answers with an
// error like any other.
func (j *job) isUnlisted(ctx context.Context, id string) bool {
	inv, err := j.inventory(ctx)
	return err == nil && !slices.ContainsFunc(inv.Containers, func(c cri.Container) bool { return c.ID == id })
}

func (j *job) keep(it Item, why string) {
	it.Why = why
	j.report.Kept = append(j.report.Kept, it)
}

// failed records a removal that failed. One that hangs or is refused does not affect the rest.
func (j *job) failed(it Item, err error) {
	j.report.fail(it, err)
	switch {
	case errors.Is(err, cri.ErrUnavailable):
		j.ended = true
	case isTimeout(err):
		j.timeouts++
		j.ended = j.timeouts >= maxTimeouts
	}
}

func isTimeout(err error) bool {
	return errors.Is(err, cri.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrStalled)
}

// removed records the removal of an item and measures. It waits for space that the runtime frees after
// its answer only after each image and after the first, second, fourth, eighth … removal. So a step
// removes at most twice as much as necessary, and a thousand removals do not wait a thousand times.
// Without a limit, no removal is too many, and none waits.
func (j *job) removed(ctx context.Context, it Item) {
	j.report.Removed = append(j.report.Removed, it)
	if j.plan.Progress != nil {
		j.plan.Progress(it)
	}
	j.timeouts, j.settled = 0, false
	j.pretended[it.ID] = j.plan.DryRun
	before := j.gauge.room.Bytes
	if err := j.gauge.after(ctx, it); err != nil {
		j.report.fail(Item{}, err)
		return
	}
	if n := len(j.report.Removed); !j.gauge.room.Unlimited && (it.Kind == KindImage || n&(n-1) == 0) {
		j.settle(ctx, before, it.Size)
	}
}

// finish waits for the space from the last removals before a more expensive step begins.
func (j *job) finish(ctx context.Context) {
	if len(j.report.Removed) > 0 && !j.settled && !j.over(ctx) {
		j.settle(ctx, j.gauge.room.Bytes, 0)
	}
	if err := ctx.Err(); err != nil && !(errors.Is(err, context.DeadlineExceeded) && slices.ContainsFunc(j.report.Errors, isListingTimeout)) {
		j.report.fail(Item{}, fmt.Errorf("collect %s: %w", j.report.Step, err))
	}
}

// isListingTimeout reports whether a listing timed out, so that nothing more is to be said about the time that a step had.
func isListingTimeout(f Failure) bool { return f.Kind == "" && isTimeout(f.Err) }

func (j *job) settle(ctx context.Context, before, expected int64) {
	j.settled = true
	if err := j.gauge.settle(ctx, before, expected); err != nil && ctx.Err() == nil {
		j.report.fail(Item{}, err)
	}
}

// collectContainers removes dead containers and their logs.
func (j *job) collectContainers(ctx context.Context) {
	inv, err := j.recent(ctx)
	if err != nil {
		j.failed(Item{}, err)
		return
	}
	if !j.plan.DryRun {
		if err := j.removeLogsLeft(ctx, inv); err != nil {
			j.report.fail(Item{}, err)
		}
	}
	choose := selectContainers
	if j.replaced {
		choose = selectReplaced
	}
	sel := choose(inv, j.containerPolicy(), &j.seen, j.clock())
	sel.removeEnded(inv, j.plan.Ended)
	j.report.Kept = sel.Keep
	sandboxes := make(map[string]string, len(inv.Containers))
	for _, c := range inv.Containers {
		sandboxes[c.ID] = c.SandboxID
	}
	var detail cri.ContainerDetail
	check := func(ctx context.Context, it Item) (string, error) {
		var err error
		if detail, err = j.runtime.ContainerStatus(ctx, it.ID); errors.Is(err, cri.ErrGone) {
			return whyGone, nil
		}
		if err == nil && detail.State == cri.Running {
			return "runs again", nil
		}
		if err == nil && detail.State == cri.Unknown {
			sandbox, err := j.runtime.Sandbox(ctx, sandboxes[it.ID])
			if err != nil && !errors.Is(err, cri.ErrGone) {
				return "", err
			}
			if sandbox.Ready {
				return whyMayRun, nil
			}
		}
		return "", err
	}
	remove := func(ctx context.Context, it Item) error {
		if detail.State == cri.Unknown {
			if err := unlessGone(j.runtime.StopContainer(ctx, it.ID, stopDeadFor)); err != nil {
				return err
			}
		}
		j.noteLog(detail)
		if err := unlessGone(j.runtime.RemoveContainer(ctx, it.ID)); err != nil {
			return err
		}
		if err := j.removeLog(ctx, detail); err != nil {
			j.report.fail(it, err) // the container is gone all the same
		}
		return nil
	}
	j.each(ctx, sel.Remove, check, remove)
	for inv, ok := j.awaitEnding(ctx, inv); ok; inv, ok = j.awaitEnding(ctx, inv) {
		late := selection{Keep: j.report.Kept}
		late.removeEnded(inv, j.plan.Ended)
		j.report.Kept = late.Keep
		j.each(ctx, late.Remove, check, remove)
	}
}

// How long a reclaim waits for the runtime to stop the sandboxes of pods that have ended by a stop, which dismantles their network and
// unmounts their files in memory. After a minute, a runtime may never be able to.
const (
	endingFor    = 2 * time.Second
	endingPoll   = 50 * time.Millisecond
	endingWithin = time.Minute
)

// awaitEnding lists the containers and sandboxes again once the runtime has stopped one of the sandboxes that are ending, unless what
// was removed is enough. It returns false if none is stopped in time.
func (j *job) awaitEnding(ctx context.Context, inv inventory) (now inventory, ok bool) {
	since := j.clock().Boot - endingWithin
	ending := inv.ending(j.plan.Ended, since)
	for end := time.Now().Add(endingFor); ending > 0 && time.Now().Before(end) && !j.gauge.met() && !j.over(ctx); {
		select {
		case <-ctx.Done():
			return inventory{}, false
		case <-time.After(endingPoll):
		}
		var err error
		if now, err = j.inventory(ctx); err != nil {
			return inventory{}, false
		}
		if now.ending(j.plan.Ended, since) < ending {
			return now, true
		}
	}
	return inventory{}, false
}

// collectSandboxes removes dead sandboxes.
func (j *job) collectSandboxes(ctx context.Context) {
	inv, err := j.recent(ctx)
	if err != nil {
		j.failed(Item{}, err)
		return
	}
	now := j.clock()
	sel := selectSandboxes(inv, j.containerPolicy(), &j.seen, now)
	j.report.Kept = sel.Keep
	waited := j.failedAt(j.waited, now.Boot)
	check := func(ctx context.Context, it Item) (string, error) {
		sandbox, err := j.runtime.Sandbox(ctx, it.ID)
		if errors.Is(err, cri.ErrGone) {
			return whyGone, nil
		}
		if err != nil {
			return "", err
		}
		if sandbox.Ready {
			return "ready again", nil
		}
		inv, err := j.inventory(ctx)
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(inv.Containers, func(c cri.Container) bool { return c.SandboxID == it.ID }) {
			return "has containers", nil
		}
		return "", nil
	}
	j.each(ctx, sel.Remove, check, func(ctx context.Context, it Item) error {
		patient := !j.plan.Containers.Finished && !waited[it.ID] && j.timeouts == 0
		if err := unlessGone(j.tearDown(ctx, it.ID, patient)); err != nil {
			if patient && isTimeout(err) && ctx.Err() == nil {
				j.noteFailed(j.waited, it.ID)
			}
			return err
		}
		return unlessGone(j.runtime.RemoveSandbox(ctx, it.ID))
	})
}

// tearDown tears down the network of a dead sandbox if that has not been done. If patient, it waits minutes
// for a slow network plugin, unless a reclaim under pressure needs the turn: a stop that was cut short is
// repeated from the start, and leaves nothing behind.
func (j *job) tearDown(ctx context.Context, id string, patient bool) error {
	if !patient {
		return j.runtime.StopSandbox(ctx, id)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-j.plan.Enough:
			cancel()
		case <-ctx.Done():
		}
	}()
	return j.runtime.StopDeadSandbox(ctx, id)
}

// collectLogs removes the log directories of pods that are gone. It removes nothing on the basis of a
// listing that may lack pods.
func (j *job) collectLogs(ctx context.Context) {
	if j.logs.Dir == "" {
		return
	}
	dirs, err := call(ctx, &j.files, logsWait, j.logs.list)
	if err != nil {
		j.failed(Item{}, err)
		return
	}
	inv, err := j.recent(ctx)
	if err != nil {
		j.failed(Item{}, err)
		return
	}
	if dirs, err = call(ctx, &j.files, logsWait, func() ([]logDir, error) { return j.logs.measure(dirs, inv) }); err != nil {
		j.failed(Item{}, err)
		return
	}
	now := j.clock()
	sel := selectLogs(dirs, inv, j.plan.Containers.MinAge, now)
	j.report.Kept = sel.Keep
	if why := j.plan.hold(now.Boot); why != "" {
		for _, it := range sel.Remove {
			j.keep(it, why)
		}
		return
	}
	check := func(ctx context.Context, it Item) (string, error) {
		inv, err := j.inventory(ctx)
		if err != nil {
			return "", err
		}
		if uid, _ := logUID(it.Name); inv.uids()[uid] {
			return "its pod is back", nil
		}
		return "", nil
	}
	j.each(ctx, sel.Remove, check, func(ctx context.Context, it Item) error {
		return j.onFiles(ctx, func() error { return j.logs.remove(it.Name) })
	})
}

// onFiles runs a call that may block in the worker of the log directory.
func (c *Collector) onFiles(ctx context.Context, f func() error) error {
	_, err := call(ctx, &c.files, logsWait, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// containerPolicy is the policy of the plan, as of now.
func (j *job) containerPolicy() ContainerPolicy {
	p := j.plan.Containers
	p.returning = j.plan.hold(j.clock().Boot) != ""
	return p
}

// hold returns why a listing may be incomplete; "" = it is complete.
func (p *Plan) hold(now time.Duration) string {
	if left := p.Images.Hold - p.runtimeFor(now); left > 0 {
		left = (left + time.Second - 1).Truncate(time.Second)
		return "the runtime started less than hold_after_runtime_restart ago, for another " + left.String()
	}
	return ""
}

// runtimeFor returns how long the runtime has been answering.
func (p *Plan) runtimeFor(now time.Duration) time.Duration {
	if p.RuntimeSince == nil {
		return now
	}
	return now - p.RuntimeSince()
}

// unlessGone treats the removal of an object that is gone as a success.
func unlessGone(err error) error {
	if errors.Is(err, cri.ErrGone) {
		return nil
	}
	return err
}
