package eviction

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// chaos is a node with random events. It implements Kernel, Runtime, Reclaimer and Stopper. Everything
// follows from the seed and the time.
type chaos struct {
	t        *testing.T
	seed     uint64
	cfg      config.Config
	start    time.Time
	peaceful bool
	jobs     sync.WaitGroup

	// Only the loop's goroutine changes these, except came, which mu guards.
	passes, stopped, came, restarts int

	mu      sync.Mutex
	rng     *rand.Rand
	pods    []*chaosPod
	listed  inventory.Inventory
	serial  int
	images  int64 // bytes on the disk that pruning images can free
	down    time.Duration
	hung    time.Duration
	blinded time.Duration
	begun   []*api.StopView // stops in flight
	low     time.Duration
	endLife context.CancelFunc
}

const (
	chaosMemory = 16 * testGiB
	chaosDisk   = 100 * testGiB
	chaosPIDs   = 32768
	chaosHard   = testGiB
)

// chaosPod is a pod whose usage grows from its creation until its death. Then the kernel frees its memory
// bit by bit, and its disk space is free when that is done.
type chaosPod struct {
	inventory.Pod
	came       time.Duration
	base       int64 // bytes of memory
	perSecond  int64 // bytes of memory per second
	disk, fork int64 // bytes and tasks per second
	limit      time.Duration
	deaf       bool          // ignores SIGTERM
	dead       time.Duration // when its last process ended; 0 = it is running
	back       time.Duration // when its memory and disk space are free again
}

func newChaos(t *testing.T, seed uint64) *chaos {
	cfg, err := config.Parse("chaos", strings.NewReader(`
[eviction]
max_pod_grace_period = "5s"
[eviction.hard]
"memory.available" = "1Gi"
[eviction.soft]
"memory.available" = "2Gi"
[eviction.soft_grace_period]
"memory.available" = "10s"
[budget]
per_hour = 100
hard = {burst = 3, every = "5s"}
soft = {burst = 2, every = "10s"}
[backoff]
first = "1s"
max = "20s"
`))
	if err != nil {
		t.Fatal(err)
	}
	w := &chaos{t: t, seed: seed, cfg: cfg, start: time.Now(), rng: rand.New(rand.NewPCG(seed, 1)), images: 20 * testGiB}
	for i, request := range []int64{3 * testGiB, 2 * testGiB, testGiB, testGiB / 2} {
		p := w.pod(fmt.Sprint("innocent-", i), request*9/10)
		p.MemoryRequest, p.QoS = request, policy.Burstable
		if i == 0 {
			p.QoS = policy.Guaranteed
		}
	}
	w.pod("innocent-small", 30<<20)
	w.pod("innocent-static", testGiB/4).Protection = "static pod"
	w.listed = inventory.Inventory{Pods: w.list()}
	return w
}

func (w *chaos) pod(name string, memory int64) *chaosPod {
	w.serial++
	p := &chaosPod{Pod: testPod(fmt.Sprint(name, "#", w.serial), 0), base: memory, came: w.now(), limit: time.Hour}
	p.Name, p.Workload, p.Created = name, "d/"+name, w.now()
	w.pods = append(w.pods, p)
	return p
}

func (w *chaos) between(low, high time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pick(low, high)
}

func (w *chaos) pick(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)))
}

// trouble triggers a random event every 1 to 20 seconds.
func (w *chaos) trouble(ctx context.Context) {
	list := time.NewTicker(2 * time.Second) // re-lists the pods as the lister does
	defer list.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-list.C:
			w.Inventory(ctx, true)
		case <-next.C:
			if !w.peaceful {
				w.mu.Lock()
				w.happen()
				w.mu.Unlock()
			}
			next.Reset(w.between(time.Second, 20*time.Second))
		}
	}
}

func (w *chaos) happen() {
	now := w.now()
	until := now + w.pick(100*time.Millisecond, 30*time.Second)
	switch w.rng.IntN(14) {
	case 0, 1, 2, 3: // a pod leaks memory, slowly or fast; an earlier pod may have had the same workload
		if w.runtimeOK(now) || now < w.hung {
			p := w.culprit()
			p.perSecond = int64(20<<20) << w.rng.IntN(7)
			p.MemoryRequest = int64(w.rng.IntN(2)) * 100 << 20
		}
	case 4:
		if w.runtimeOK(now) {
			w.culprit().disk = int64(w.pick(100<<20, 2<<30))
		}
	case 5:
		if w.runtimeOK(now) {
			w.culprit().fork = int64(w.pick(100, 20000))
		}
	case 6: // a harmless pod starts
		if w.runtimeOK(now) {
			w.pod("innocent-late", 20<<20).limit = w.pick(time.Second, time.Minute)
		}
	case 7: // a culprit ends on its own
		for _, p := range w.pods {
			if p.dead == 0 && strings.HasPrefix(p.Name, "culprit") {
				w.end(p, 0)
				break
			}
		}
	case 8:
		w.down = until
	case 9:
		w.hung = until
	case 10:
		w.blinded = min(until, now+3*time.Second)
	case 11: // images are pulled
		w.images = min(w.images+int64(w.rng.IntN(5))*testGiB, 60*testGiB)
	case 12:
		if w.endLife != nil {
			w.endLife()
		}
	}
}

func (w *chaos) culprit() *chaosPod {
	w.came++
	p := w.pod(fmt.Sprint("culprit-", w.rng.IntN(4)), 10<<20)
	p.deaf = w.rng.IntN(2) == 0
	return p
}

// end ends a pod's processes. Freeing its memory and disk space takes as long as lag.
func (w *chaos) end(p *chaosPod, lag time.Duration) {
	p.dead = w.now()
	p.back = p.dead + lag
}

func (w *chaos) now() time.Duration { return time.Since(w.start) + time.Hour }

func (p *chaosPod) grown(now time.Duration) int64 {
	if p.dead != 0 {
		now = p.dead
	}
	return int64(now-p.came) / int64(time.Millisecond)
}

// uses returns what a pod uses now: bytes of memory, bytes of disk, and tasks.
func (p *chaosPod) uses(now time.Duration) (memory, disk, tasks int64) {
	if p.dead != 0 && now >= p.back {
		return 0, 0, 0
	}
	ms := p.grown(now)
	memory, disk, tasks = p.base+p.perSecond*ms/1000, p.disk*ms/1000, 10+p.fork*ms/1000
	if p.dead != 0 {
		memory, tasks = int64(float64(memory)*(p.back-now).Seconds()/(p.back-p.dead).Seconds()), 0
	}
	return memory, disk, tasks
}

func (w *chaos) memory(now time.Duration) int64 {
	available := int64(chaosMemory - testGiB)
	for _, p := range w.pods {
		m, _, _ := p.uses(now)
		available -= m
	}
	return max(available, 0)
}

func (w *chaos) hardLevel() int64                 { return chaosHard }
func (w *chaos) blind(now time.Duration) bool     { return now < w.blinded }
func (w *chaos) runtimeOK(now time.Duration) bool { return now >= w.down && now >= w.hung }

// Now implements Kernel.
func (w *chaos) Now() time.Duration { return w.now() }

// Layout implements Kernel.
func (w *chaos) Layout() policy.Layout { return policy.SingleFS }

// Observe implements Kernel.
func (w *chaos) Observe(obs *policy.Observations) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	disk, tasks := int64(chaosDisk-20*testGiB)-w.images, int64(chaosPIDs-500)
	alive := w.pods[:0]
	for _, p := range w.pods {
		if p.dead == 0 && now-p.came > p.limit {
			w.end(p, 0)
		}
		_, d, n := p.uses(now)
		disk, tasks = disk-d, tasks-n
		if p.dead == 0 || now < p.back {
			alive = append(alive, p)
		}
	}
	clear(w.pods[len(alive):])
	w.pods = alive
	status := policy.OK
	if w.blind(now) {
		status = policy.Failed
	}
	obs[policy.MemoryAvailable] = policy.Observation{Available: w.memory(now), Capacity: chaosMemory, At: now, Status: status}
	obs[policy.NodeFSAvailable] = policy.Observation{Available: max(disk, 0), Capacity: chaosDisk, At: now, Status: policy.OK}
	obs[policy.PIDAvailable] = policy.Observation{Available: max(tasks, 0), Capacity: chaosPIDs, At: now, Status: policy.OK}
}

// HasUnlisted implements Kernel.
func (w *chaos) HasUnlisted(inventory.Pod) bool { return false }

// ConfirmUnlisted implements Kernel.
func (w *chaos) ConfirmUnlisted() {}

// PodsMemory implements Kernel.
func (w *chaos) PodsMemory() policy.Amount {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := int64(0)
	for _, p := range w.pods {
		m, _, _ := p.uses(w.now())
		sum += m
	}
	return policy.Known(sum)
}

// Remaining implements Kernel.
func (w *chaos) Remaining(pod inventory.Pod, pool policy.Pool) policy.Amount {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.find(pod.ID)
	if p == nil {
		return policy.Known(0)
	}
	m, _, n := p.uses(w.now())
	if pool == policy.PoolPIDs {
		m = n
	}
	return policy.Known(m)
}

// Measure implements Kernel.
func (w *chaos) Measure(cs []policy.Candidate, _ policy.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for i := range cs {
		c := &cs[i]
		c.Memory, c.PIDs, c.Disk = policy.Known(0), policy.Known(0), diskBytes(0)
		if p := w.find(c.ID); p != nil {
			m, d, n := p.uses(now)
			c.Memory, c.PIDs, c.Disk = policy.Known(m), policy.Known(n), diskBytes(d)
		}
	}
}

// Unlisted implements Kernel.
func (w *chaos) Unlisted(pods []inventory.Pod, s policy.Signal) (largest int64, found bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	known := map[string]bool{}
	for i := range pods {
		known[pods[i].ID] = true
	}
	for _, p := range w.pods {
		if p.dead == 0 && !known[p.ID] && !s.IsDisk() {
			m, _, n := p.uses(now)
			if found = true; s.Resource() == policy.ResourcePIDs {
				m = n
			}
			largest = max(largest, m)
		}
	}
	return largest, found
}

func (w *chaos) find(id string) *chaosPod {
	for _, p := range w.pods {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// alive counts the sandboxes that are being stopped for a signal and still run.
func (w *chaos) alive(signal, kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, s := range w.begun {
		if p := w.find(s.Sandbox); p != nil && p.dead == 0 && s.Signal == signal && s.Kind == kind {
			n++
		}
	}
	return n
}

func (w *chaos) list() []inventory.Pod {
	var pods []inventory.Pod
	for _, p := range w.pods {
		if p.dead == 0 {
			pods = append(pods, p.Pod)
		}
	}
	return pods
}

var errChaos = errors.New("as the scenario has it")

// Inventory implements Runtime. Without fresh, it returns the last listing.
func (w *chaos) Inventory(ctx context.Context, fresh bool) inventory.Inventory {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !fresh {
		return w.listed
	}
	if now := w.now(); now < w.hung {
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
		w.mu.Lock()
	}
	if w.runtimeOK(w.now()) {
		w.listed = inventory.Inventory{Pods: w.list(), At: w.now()}
	} else {
		w.listed.Err = errChaos
	}
	return w.listed
}

// Reclaim implements Reclaimer.
func (w *chaos) Reclaim(ctx context.Context, m policy.Met, _ policy.Layout, _ []inventory.Pod) ReliefJob {
	if m.Signal.Condition() != policy.DiskPressure {
		return Finished(Relief{})
	}
	j := &fakeRelief{done: make(chan struct{})}
	took := w.between(time.Millisecond, 5*time.Second)
	w.jobs.Go(func() {
		defer close(j.done)
		select {
		case <-time.After(took):
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.runtimeOK(w.now()) {
			freed := min(w.images, m.Deficit)
			w.images -= freed
			j.freed, j.steps = freed, []string{"images"}
		}
	})
	return j
}

// chaosStop is a stop on a node with faults.
type chaosStop struct {
	done     chan struct{}
	escalate chan struct{}
	once     sync.Once
	outcome  StopOutcome
}

func (s *chaosStop) Done() <-chan struct{} { return s.done }
func (s *chaosStop) Escalate(bool)         { s.once.Do(func() { close(s.escalate) }) }
func (s *chaosStop) Outcome() StopOutcome  { return s.outcome }

// Permit implements Fleet. It holds every soft stop in every other minute.
func (w *chaos) Permit(_ string, s *policy.Stop) policy.Held {
	if s.Kind == policy.Hard {
		w.t.Error("a hard stop asks the fleet")
	}
	if w.now()/time.Minute%2 == 0 {
		return policy.Held{By: api.HeldFleet, Detail: "zone z1 is partial: 0/s"}
	}
	return policy.Held{}
}

// Stop implements Stopper.
func (w *chaos) Stop(ctx context.Context, o StopOrder) StopJob {
	s := &chaosStop{done: make(chan struct{}), escalate: make(chan struct{})}
	w.mu.Lock()
	p := w.find(o.Pod.ID)
	wait := w.pick(time.Millisecond, 60*time.Millisecond)
	switch {
	case o.Direct || p == nil:
	case !w.runtimeOK(w.now()):
		wait += w.cfg.Eviction.StopTimeout // the fallback kills the containers
	case o.Grace > 0 && p.deaf:
		wait += o.Grace
	}
	w.mu.Unlock()
	w.jobs.Go(func() {
		defer close(s.done)
		end := ctx.Done()
		if o.Direct {
			end = nil // SIGKILL was sent, so the stop no longer depends on the service
		}
		select {
		case <-time.After(wait):
		case <-s.escalate:
		case <-end: // the service was killed, and its stop with it
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if p == nil || p.dead != 0 {
			s.outcome.Nothing = true
			s.outcome.Result.Errors = []string{"gone"}
			return
		}
		w.end(p, w.pick(time.Millisecond, 3*time.Second))
		s.outcome.Result = api.StopResult{Emptied: true, EmptiedIn: api.Duration(wait), Confirmed: w.runtimeOK(w.now()), Method: "direct"}
	})
	return s
}
