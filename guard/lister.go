package guard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cri"
)

// podSource is what the lister asks of a runtime: calls that never ask a shim.
type podSource interface {
	Sandboxes(ctx context.Context) ([]cri.Sandbox, error)
	Containers(ctx context.Context) ([]cri.Container, error)
	ContainerDetail(ctx context.Context, id string) (cri.ContainerDetail, error)
}

// listed is what is known of a sandbox: what a pod is judged by.
type listed struct {
	cri.Sandbox
	created    time.Duration         // since boot
	containers []cri.ContainerDetail // that have not ended
	ended      []string              // images of those that have ended
	// classified are the containers that the pod's class is known by: these, or, while nothing
	// is known of any, those that were there before. None = it is not known.
	classified []cri.ContainerDetail
}

// lister keeps the inventory warm: a slow re-list, a faster one near a threshold,
// one at once when something hints at a change. What does not change over a
// container's life is asked for once.
type lister struct {
	source  func(context.Context) (podSource, error)
	locate  func(cri.ContainerDetail) cri.ContainerDetail // finds what the runtime does not tell; nil = nothing is looked for
	build   func(listed) Pod
	refresh func(context.Context) // brings what build needs up to date, before each listing
	publish func(Inventory)
	now     func() time.Duration
	clock   func() time.Time

	turn    chan struct{} // holds one element while a listing goes on
	details map[string]cri.ContainerDetail
	current atomic.Pointer[Inventory]

	mu   sync.Mutex        // held while pods are judged and become current
	last map[string]listed // by ID; changed by a listing alone
}

// detailsAtOnce bounds the calls that a first listing makes at a time.
const detailsAtOnce = 4

// Current is the inventory as last listed; with an error and nothing in it
// before the first listing.
func (l *lister) Current() Inventory {
	if inv := l.current.Load(); inv != nil {
		return *inv
	}
	return Inventory{At: -1, Err: ErrNoRuntime}
}

// List asks the runtime. When it does not answer the last good pods stay, with the
// error beside them. When ctx ends before it has answered, or before an earlier listing
// is through, all stays as it was: who waits for 250 ms cannot tell that nobody answers.
func (l *lister) List(ctx context.Context) Inventory {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return l.Current()
	}
	at, sandboxes, err := l.list(ctx)
	if hasLeft(ctx) {
		return l.Current() // nor are details that were not waited for missing
	}
	inv := l.judge(at, sandboxes, err)
	l.publish(inv)
	return inv
}

// judge makes what was listed current, or the error with which nothing was.
func (l *lister) judge(at time.Duration, sandboxes []listed, err error) Inventory {
	l.mu.Lock()
	defer l.mu.Unlock()
	inv := Inventory{At: at}
	if err != nil {
		inv = l.Current()
		inv.Err = noRuntime(err)
	} else {
		l.last = make(map[string]listed, len(sandboxes))
	}
	for _, s := range sandboxes {
		l.last[s.ID] = s
		inv.Pods = append(inv.Pods, l.build(s))
	}
	l.current.Store(&inv)
	return inv
}

// Rejudge judges the pods anew as they were listed last, when what they are judged by has
// changed. A listing that is under way judges its own.
func (l *lister) Rejudge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	inv := l.Current()
	pods := make([]Pod, len(inv.Pods))
	for i := range inv.Pods {
		pods[i] = l.build(l.last[inv.Pods[i].ID])
	}
	inv.Pods = pods
	l.current.Store(&inv)
}

// list asks the runtime for the sandboxes that are ready or hold something alive.
func (l *lister) list(ctx context.Context) (at time.Duration, ready []listed, err error) {
	src, err := l.source(ctx)
	if err != nil {
		return 0, nil, err
	}
	at = l.now()
	sandboxes, err := src.Sandboxes(ctx)
	if err != nil {
		return 0, nil, err
	}
	containers, err := src.Containers(ctx)
	if err != nil {
		return 0, nil, err
	}
	l.refresh(ctx)
	alive, ended := l.alive(ctx, src, containers), endedImages(containers)
	for i := range sandboxes {
		s := &sandboxes[i]
		ctrs := alive[s.ID]
		if !s.Ready && len(ctrs) == 0 {
			continue
		}
		pod := listed{
			Sandbox: *s, created: l.age(s), containers: ctrs, ended: ended[s.ID], classified: l.last[s.ID].classified,
		}
		if slices.ContainsFunc(ctrs, classifies) {
			pod.classified = ctrs
		}
		ready = append(ready, pod)
	}
	return at, ready, nil
}

// age places a sandbox's creation on the boot clock, once: a wall clock that
// jumps later does not make pods older or younger. One that is not told, or in the
// future, as when the clock was set back, is the boot's: nobody is stopped for being
// young whose age is not known.
func (l *lister) age(s *cri.Sandbox) time.Duration {
	if last, ok := l.last[s.ID]; ok {
		return last.created
	}
	age := l.clock().Sub(s.CreatedAt)
	if s.CreatedAt.IsZero() || age < 0 {
		return 0
	}
	return l.now() - age
}

// alive returns the details of containers that have not ended, by sandbox. Of one whose
// state the runtime has lost, as containerd has while a shim does not answer, the processes
// may well run. A container that is gone by the time it is asked for is left out; one whose
// details cannot be had now is listed without them and asked for again next time.
func (l *lister) alive(ctx context.Context, src podSource, containers []cri.Container) map[string][]cri.ContainerDetail {
	got := make([]cri.ContainerDetail, len(containers))
	keep := make([]bool, len(containers))
	var wg sync.WaitGroup
	places := make(chan struct{}, detailsAtOnce)
	for i := range containers {
		c := &containers[i]
		if c.State == cri.Exited {
			continue
		}
		if d, ok := l.details[c.ID]; ok {
			d.State = c.State
			got[i], keep[i] = d, true
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			d, err := src.ContainerDetail(ctx, c.ID)
			switch {
			case errors.Is(err, cri.ErrGone):
				return
			case err != nil:
				d = cri.ContainerDetail{}
			case l.locate != nil:
				d = l.locate(d)
			}
			// The list's identity is kept: containerd's status may name another tag.
			d.Container = *c
			got[i], keep[i] = d, true
		})
	}
	wg.Wait()
	details := make(map[string]cri.ContainerDetail, len(containers))
	out := map[string][]cri.ContainerDetail{}
	for i := range got {
		if !keep[i] {
			continue
		}
		d := got[i]
		if d.CgroupsPath != "" || d.PID != 0 {
			details[d.ID] = d
		}
		out[d.SandboxID] = append(out[d.SandboxID], d)
	}
	l.details = details
	return out
}

// endedImages names the images of the containers that have ended, each once, by sandbox.
func endedImages(containers []cri.Container) map[string][]string {
	ended := map[string][]string{}
	for i := range containers {
		c := &containers[i]
		if c.State != cri.Exited {
			continue
		}
		for _, name := range imageNames(c) {
			if names := ended[c.SandboxID]; name != "" && !slices.Contains(names, name) {
				ended[c.SandboxID] = append(names, name)
			}
		}
	}
	return ended
}

// Run lists until ctx ends: when pause is over, when kicked, and at once first. What pause goes
// by may change while it lasts: repaced, it counts anew from the last listing, so that a signal
// that comes near a threshold and goes again, over and over, is no listing each time.
func (l *lister) Run(ctx context.Context, pause func() time.Duration, kick, repace <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-repace:
			timer.Reset(pause() - time.Since(last))
			continue
		case <-timer.C:
		case <-kick:
		}
		l.List(ctx)
		last = time.Now()
		timer.Reset(pause())
		// A node where much is mounted or many pods come and go hints all the time;
		// who cannot wait asks for a fresh inventory.
		select {
		case <-ctx.Done():
			return
		case <-time.After(listGap):
		}
	}
}

// listGap is the least time between two listings that hints ask for.
const listGap = 250 * time.Millisecond
