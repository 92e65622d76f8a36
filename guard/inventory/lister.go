package inventory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/lastgood"
)

// Source is the part of a runtime client that the Lister uses. None of its calls reaches a shim.
type Source interface {
	Sandboxes(ctx context.Context) ([]cri.Sandbox, error)
	Containers(ctx context.Context) ([]cri.Container, error)
	ContainerDetail(ctx context.Context, id string) (cri.ContainerDetail, error)
}

// listed holds the facts about a sandbox from which its pod is derived.
type listed struct {
	cri.Sandbox
	created    time.Duration         // since boot
	containers []cri.ContainerDetail // that have not exited
	ended      exited                // the exited containers
	// classified are the containers from which the QoS class is derived: the current ones, or, while some
	// of them have no details, the previous ones. Empty = the class is not known.
	classified []cri.ContainerDetail
	seen       map[string]container // all containers by name, if a kubelet's state has the pod
}

// Options configures a Lister.
type Options struct {
	Config config.Config
	// Source returns the runtime to list. Each listing calls it once, at its start.
	Source func(context.Context) (Source, error)
	Layout cgroup.Layout // locates the pods' cgroups
	Proc   cgroup.Proc   // "" = do not look for criguard's own cgroup
	// Capacity returns the node's memory in bytes (MemTotal); nil = unknown.
	Capacity func() int64
	// KubeletRoot returns the kubelet's root directory; nil = do not read the kubelet's state.
	KubeletRoot func() string
	// Refresh is called in the first listing in which the runtime answers, and after the others; nil = not called.
	// A stop does not wait for it.
	Refresh func(context.Context)
	// Track is called with the pods of each listing before these replace the pods of the last one: from then on, they are measured.
	// nil = not called.
	Track func([]Pod)
	// Publish is called after each listing that was not abandoned, on its goroutine; nil = not called.
	Publish func(Inventory)
	Now     func() time.Duration
	Clock   func() time.Time
}

// Lister keeps the inventory current. It re-lists at a slow interval, faster near a threshold, and at once
// after an event that hints at a change. It requests details that are fixed for a container's life only
// once.
type Lister struct {
	opt     Options
	locate  func(cri.ContainerDetail) cri.ContainerDetail // adds details that the runtime does not report
	kubelet *kubeletState

	listing chan struct{} // holds one element while a listing is in progress
	details map[string]cri.ContainerDetail
	ends    map[string]time.Time // when exited containers ended, by ID, zero if they failed; only those that seen needs
	// silentAt is when the details of an exited container were last requested to learn the class of its pod, by ID.
	silentAt map[string]time.Duration
	current  atomic.Pointer[Inventory]
	// listings counts those that were not abandoned.
	listings atomic.Int64
	// For a runtime that hangs, Fresh and Next each wait once. Neither is without a listing because the other waits for it.
	fresh, next lastgood.Value[Inventory]

	mu    sync.Mutex // held while pods are derived and stored
	ended time.Time  // when the last listing ended
	cfg   config.Config
	facts nodeFacts
	last  map[string]listed // by sandbox ID; only a listing changes it
	// protected maps the pods that operators protect, by namespace/name, to the reason.
	protected map[string]string
}

// New returns a Lister that has not listed anything yet.
func New(opt Options) *Lister {
	l := &Lister{opt: opt, cfg: opt.Config, locate: locator(opt.Layout), listing: make(chan struct{}, 1), silentAt: map[string]time.Duration{}}
	l.facts = nodeFacts{resolve: opt.Layout.Resolve, memoryMin: opt.Layout.MemoryMin, children: opt.Layout.Children, memoryLimit: opt.Layout.MemoryLimit}
	if opt.Proc != "" {
		l.facts.self = findOwnPod(opt.Layout, opt.Proc)
	}
	if opt.KubeletRoot != nil {
		l.kubelet = newKubeletState(opt.KubeletRoot)
	}
	return l
}

// detailsAtOnce limits the concurrent ContainerDetail calls of one listing.
const detailsAtOnce = 4

// Current returns the inventory of the last listing. Before the first listing it is empty and carries
// cri.ErrNoRuntime.
func (l *Lister) Current() Inventory {
	if inv := l.current.Load(); inv != nil {
		return *inv
	}
	return Inventory{At: -1, Err: cri.ErrNoRuntime}
}

// Fresh lists the pods for a caller that cannot wait long. After FreshTimeout it returns the current inventory.
func (l *Lister) Fresh(ctx context.Context) Inventory {
	return l.soon(ctx, &l.fresh, l.opt.Now(), FreshTimeout)
}

// Next waits for the next listing to end, the one in progress or another one, but not longer than wait.
func (l *Lister) Next(ctx context.Context, wait time.Duration) Inventory {
	return l.soon(ctx, &l.next, -1, wait)
}

// soon waits for a listing that began at since or later, but not longer than wait. The listing goes on after that: if every caller
// cut it short, a runtime that takes a little longer would never be listed.
func (l *Lister) soon(ctx context.Context, v *lastgood.Value[Inventory], since, wait time.Duration) Inventory {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	v.Get(waiting, func() Inventory { inv, _ := l.share(ctx, since); return inv })
	return l.Current() // another listing may have replaced the result
}

// FreshTimeout limits how long a stop waits for listings, wherever they hang.
const FreshTimeout = 250 * time.Millisecond

// List lists the pods. If the runtime does not answer, the inventory keeps the last good pods and carries
// the error. If ctx ends before the runtime has answered or before an earlier listing has ended, nothing
// changes: a caller that gives up cannot conclude that the runtime is down.
func (l *Lister) List(ctx context.Context) Inventory {
	first := l.Current().At < 0
	inv, err := l.share(ctx, l.opt.Now())
	if err == nil && !first && l.opt.Refresh != nil {
		l.opt.Refresh(ctx)
	}
	return inv
}

// share lists the pods, or takes a listing of another caller that has ended since share was called and began at since or later.
func (l *Lister) share(ctx context.Context, since time.Duration) (Inventory, error) {
	listings := l.listings.Load()
	inv, _, err := l.listOnce(ctx, func(i Inventory) bool { return l.listings.Load() > listings && i.Err == nil && i.At >= since })
	return inv, err
}

// ListAll is List for a caller that also needs the runtime's own listing, which the Lister does not keep. It
// returns an error if this call got no listing.
func (l *Lister) ListAll(ctx context.Context) (Inventory, cri.Listing, error) {
	return l.listOnce(ctx, func(Inventory) bool { return false })
}

// listOnce lists the pods unless the inventory serves when the listing of another caller has ended.
func (l *Lister) listOnce(ctx context.Context, serves func(Inventory) bool) (Inventory, cri.Listing, error) {
	select {
	case l.listing <- struct{}{}:
		defer func() { <-l.listing }()
	case <-ctx.Done():
		return l.Current(), cri.Listing{}, cri.ErrTimeout
	}
	if inv := l.Current(); serves(inv) {
		return inv, cri.Listing{}, nil
	}
	at, all, sandboxes, err := l.list(ctx)
	if cri.Abandoned(ctx) {
		return l.Current(), cri.Listing{}, cri.ErrTimeout // details may be missing only because time ran out
	}
	inv := l.update(at, sandboxes, err)
	if l.opt.Publish != nil {
		l.opt.Publish(inv)
	}
	return inv, all, err
}

// update stores the result of a listing as the current inventory, or records its error.
func (l *Lister) update(at time.Duration, sandboxes []listed, err error) Inventory {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = time.Now()
	l.listings.Add(1)
	inv := Inventory{At: at}
	if err != nil {
		inv = l.Current()
		inv.Err = cri.NoRuntime(err)
	} else {
		l.last = make(map[string]listed, len(sandboxes))
	}
	for _, s := range sandboxes {
		l.last[s.ID] = s
		inv.Pods = append(inv.Pods, l.build(s))
	}
	dropShared(inv.Pods)
	if l.opt.Track != nil {
		l.opt.Track(inv.Pods)
	}
	l.current.Store(&inv)
	return inv
}

// SetConfig applies another configuration's rules to the pods of the last listing, because a pod that a new
// rule protects must not wait for the next listing.
func (l *Lister) SetConfig(cfg config.Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = cfg
	l.rebuild()
}

// Protect protects pods in addition to the configuration's rules. It takes the reasons by namespace/name and
// replaces those of an earlier call.
func (l *Lister) Protect(reasons map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !maps.Equal(l.protected, reasons) {
		l.protected = reasons
		l.rebuild()
	}
}

// Protected returns what the last call of Protect gave.
func (l *Lister) Protected() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.protected
}

// rebuild applies the rules to the pods of the last listing. The caller holds l.mu.
func (l *Lister) rebuild() {
	inv := l.Current()
	pods := make([]Pod, len(inv.Pods))
	for i := range inv.Pods {
		pods[i] = l.build(l.last[inv.Pods[i].ID])
	}
	dropShared(pods)
	inv.Pods = pods
	l.current.Store(&inv)
}

// build derives a pod and applies the rules to it. The caller holds l.mu.
func (l *Lister) build(s listed) Pod {
	p := derivePod(&l.cfg, s, &l.facts)
	if p.Protection == "" {
		p.Protection = l.protected[p.FullName()]
	}
	return p
}

// refresh updates the facts from which pods are derived.
func (l *Lister) refresh(ctx context.Context) {
	var allocated map[string]allocated
	if l.kubelet != nil {
		allocated = l.kubelet.read(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts.allocated = allocated
	if l.opt.Capacity != nil {
		l.facts.capacity = l.opt.Capacity()
	}
}

// ruleLabels returns the labels that the rules in force name.
func (l *Lister) ruleLabels() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ruleLabels(&l.cfg)
}

// list lists everything, and returns the sandboxes that are ready or have a container that has not exited.
func (l *Lister) list(ctx context.Context) (at time.Duration, all cri.Listing, ready []listed, err error) {
	src, err := l.opt.Source(ctx)
	if err != nil {
		return 0, all, nil, err
	}
	at = l.opt.Now()
	if all.Containers, err = src.Containers(ctx); err != nil {
		return 0, all, nil, err
	}
	if all.Sandboxes, err = src.Sandboxes(ctx); err != nil {
		return 0, all, nil, err
	}
	if l.opt.Refresh != nil && l.Current().At < 0 {
		l.opt.Refresh(ctx)
	}
	l.refresh(ctx)
	alive, ruleLabels := l.alive(ctx, src, all.Containers, l.silent(&all)), l.ruleLabels()
	ended := exitedIn(all.Containers, l.details)
	seen := l.seen(ctx, src, all)
	for _, s := range all.Sandboxes {
		of := alive[s.ID]
		ctrs := of.alive
		if !s.Ready && len(ctrs) == 0 {
			continue
		}
		boundSandbox(&s, ruleLabels)
		pod := listed{
			Sandbox: s, created: l.age(&s), containers: ctrs, ended: ended[s.ID], classified: l.last[s.ID].classified, seen: seen[s.ID],
		}
		known := func(d cri.ContainerDetail) bool { return !classifies(d) }
		if len(ctrs) > 0 && !slices.ContainsFunc(ctrs, known) || len(pod.classified) == 0 && slices.ContainsFunc(ctrs, classifies) {
			pod.classified = ctrs
		}
		if len(pod.classified) == 0 && slices.ContainsFunc(of.exited, classifiesExited) {
			pod.classified = of.exited
		}
		ready = append(ready, pod)
	}
	return at, all, ready, nil
}

// age returns a sandbox's creation time on the boot clock. It converts the time once, so a later jump of the
// wall clock does not change a pod's age. If the creation time is missing or in the future, because the
// clock was set back, it returns the boot time: a pod must not be stopped for being young if its age is
// unknown.
func (l *Lister) age(s *cri.Sandbox) time.Duration {
	if last, ok := l.last[s.ID]; ok {
		return last.created
	}
	age := l.opt.Clock().Sub(s.CreatedAt)
	if s.CreatedAt.IsZero() || age < 0 {
		return 0
	}
	return l.opt.Now() - age
}

// alive returns the details of containers that have not exited, by sandbox, and of the silent ones. A container in the state
// Unknown is included because it may still run: containerd reports that state while a shim does not answer. A
// container that disappears meanwhile is left out. If a request for details fails, the container is listed
// without them and the next listing retries.
func (l *Lister) alive(ctx context.Context, src Source, containers []cri.Container, silent map[string]bool) map[string]detailed {
	got := make([]cri.ContainerDetail, len(containers))
	keep := make([]bool, len(containers))
	details := make(map[string]cri.ContainerDetail, len(containers))
	var wg sync.WaitGroup
	slots := make(chan struct{}, detailsAtOnce)
	for i := range containers {
		c := &containers[i]
		d, ok := l.details[c.ID]
		if c.State == cri.Exited && !silent[c.ID] {
			if len(d.Mounts) > 0 {
				details[c.ID] = d
			}
			continue
		}
		// The process of one that has started since shows where its cgroup is, see locator.
		if ok && (d.PID != 0 || d.State == c.State) {
			d.State = c.State
			got[i], keep[i] = d, true
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			d, err := src.ContainerDetail(ctx, c.ID)
			switch {
			case errors.Is(err, cri.ErrGone):
				return
			case err != nil:
				d = cri.ContainerDetail{}
			default:
				d.SandboxID = c.SandboxID
				d = l.locate(d)
			}
			// Keep the identity from the list: containerd's status may name another image tag.
			d.Container = *c
			boundContainer(&d)
			got[i], keep[i] = d, true
		})
	}
	wg.Wait()
	out := map[string]detailed{}
	for i := range got {
		if !keep[i] {
			continue
		}
		d := got[i]
		if d.CgroupsPath != "" || d.PID != 0 {
			details[d.ID] = d
		}
		of := out[d.SandboxID]
		if d.State == cri.Exited {
			of.exited = append(of.exited, d)
		} else {
			of.alive = append(of.alive, d)
		}
		out[d.SandboxID] = of
	}
	l.details = details
	return out
}

// seen returns the containers of the pods in the kubelet's state, by sandbox and name. A container that has ended before
// another one of its pod was created, with exit code 0, is an init container: these run one after the other, before all others.
func (l *Lister) seen(ctx context.Context, src Source, all cri.Listing) map[string]map[string]container {
	newest := map[string]map[string]*cri.Container{}
	for i := range all.Sandboxes {
		if _, ok := l.facts.allocated[all.Sandboxes[i].UID]; ok {
			newest[all.Sandboxes[i].ID] = map[string]*cri.Container{}
		}
	}
	for i := range all.Containers {
		c := &all.Containers[i]
		if pod := newest[c.SandboxID]; pod != nil && (pod[c.Name] == nil || pod[c.Name].Attempt < c.Attempt) {
			pod[c.Name] = c
		}
	}
	ends := map[string]time.Time{}
	seen := make(map[string]map[string]container, len(newest))
	for sandbox, pod := range newest {
		var last time.Time
		for _, c := range pod {
			if c.CreatedAt.After(last) {
				last = c.CreatedAt
			}
		}
		seen[sandbox] = make(map[string]container, len(pod))
		for name, c := range pod {
			got := container{created: c.CreatedAt}
			if c.State == cri.Exited && c.CreatedAt.Before(last) {
				end, ok := l.ends[c.ID]
				if !ok {
					d, err := src.ContainerDetail(ctx, c.ID)
					if ok = err == nil; d.ExitCode == 0 { // an init container that fails runs again
						end = d.FinishedAt
					}
				}
				if ok {
					ends[c.ID] = end
				}
				got.isInit = !end.IsZero() && !end.After(last)
			}
			seen[sandbox][name] = got
		}
	}
	l.ends = ends
	return seen
}

// Run lists at once and then, until ctx ends, after each pause and on each kick. The pause may change while
// it runs: on repace, Run restarts the timer. A pause counts from the last listing, also from one that Run did
// not make. A signal that crosses back and forth near a threshold therefore does not cause a listing each time.
func (l *Lister) Run(ctx context.Context, pause func() time.Duration, kick, repace <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-repace:
			timer.Reset(pause() - l.sinceListed())
			continue
		case <-timer.C:
			if rest := pause() - l.sinceListed(); rest > 0 { // listed meanwhile
				timer.Reset(rest)
				continue
			}
		case <-kick:
		}
		l.List(ctx)
		timer.Reset(pause() - l.sinceListed())
		// A node with many mounts or much pod churn sends hints all the time. Callers that cannot wait call
		// Fresh.
		select {
		case <-ctx.Done():
			return
		case <-time.After(listGap):
		}
	}
}

// sinceListed returns how long ago the last listing ended.
func (l *Lister) sinceListed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.ended)
}

// listGap is the minimum time between two listings.
const listGap = 250 * time.Millisecond
