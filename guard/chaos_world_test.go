package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/policy"
)

// chaos is a node where everything happens at random. It is the guard's kernel,
// runtime, reclaimer and stopper; all of it follows from the seed and the time.
type chaos struct {
	t        *testing.T
	seed     uint64
	cfg      Config
	start    time.Time
	peaceful bool
	jobs     sync.WaitGroup

	// Of the loop's goroutine.
	passes, stopped, came, restarts int

	mu      sync.Mutex
	rng     *rand.Rand
	pods    []*chaosPod
	listed  Inventory
	serial  int
	images  int64 // bytes on the disk that pruning may free
	down    time.Duration
	hung    time.Duration
	blinded time.Duration
	begun   []string // stops under way
	low     time.Duration
	endLife context.CancelFunc
}

const (
	chaosMemory = 16 * testGiB
	chaosDisk   = 100 * testGiB
	chaosPIDs   = 32768
	chaosHard   = testGiB
)

// chaosPod is a pod whose use grows from when it came until it is dead; what it used
// comes back some time after.
type chaosPod struct {
	Pod
	came       time.Duration
	base       int64 // bytes of memory
	perSecond  int64 // of memory
	disk, fork int64 // bytes and tasks per second
	limit      time.Duration
	deaf       bool          // ignores SIGTERM
	dead       time.Duration // when its last process ended; 0 = it runs
	back       time.Duration // when its bytes are back
}

func newChaos(t *testing.T, seed uint64) *chaos {
	cfg, err := ParseConfig("chaos", strings.NewReader(`
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
	w.listed = Inventory{Pods: w.list()}
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

// trouble makes something happen every few seconds.
func (w *chaos) trouble(ctx context.Context) {
	list := time.NewTicker(2 * time.Second) // what the lister does
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
	case 0, 1, 2, 3: // something leaks, slowly or fast; its workload may be one of before
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
	case 6: // somebody harmless comes
		if w.runtimeOK(now) {
			w.pod("innocent-late", 20<<20).limit = w.pick(time.Second, time.Minute)
		}
	case 7: // a culprit ends by itself
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

// end ends a pod's processes. Their memory is back before the last one is gone; what
// else is charged to the pod, as files in memory, lags behind.
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

// uses is what a pod uses now: bytes of memory and disk, and tasks.
func (p *chaosPod) uses(now time.Duration) (memory, disk, tasks int64) {
	if p.dead != 0 && now >= p.back {
		return 0, 0, 0
	}
	ms := p.grown(now)
	memory, disk, tasks = p.base+p.perSecond*ms/1000, p.disk*ms/1000, 10+p.fork*ms/1000
	if p.dead != 0 {
		tasks = 0
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

func (w *chaos) HasUnlisted(Pod) bool { return false }
func (w *chaos) Outlived()            {}

// Measure implements Kernel.
func (w *chaos) Measure(cs []policy.Candidate, _ []Pod, s policy.Signal) (largest int64, strangers bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	known := map[string]bool{}
	for i := range cs {
		c := &cs[i]
		known[c.ID] = true
		c.Memory, c.PIDs, c.Disk = policy.Known(0), policy.Known(0), policy.DiskUsage{Known: true}
		if p := w.find(c.ID); p != nil {
			m, d, n := p.uses(now)
			c.Memory, c.PIDs, c.Disk.Rootfs = policy.Known(m), policy.Known(n), d
		}
	}
	for _, p := range w.pods {
		if p.dead == 0 && !known[p.ID] && !s.IsDisk() {
			m, _, n := p.uses(now)
			if strangers = true; s.Resource() == policy.ResourcePIDs {
				m = n
			}
			largest = max(largest, m)
		}
	}
	return largest, strangers
}

func (w *chaos) find(id string) *chaosPod {
	for _, p := range w.pods {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// alive counts the sandboxes that run.
func (w *chaos) alive(ids []string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, id := range ids {
		if p := w.find(id); p != nil && p.dead == 0 {
			n++
		}
	}
	return n
}

func (w *chaos) list() []Pod {
	var pods []Pod
	for _, p := range w.pods {
		if p.dead == 0 {
			pods = append(pods, p.Pod)
		}
	}
	return pods
}

var errChaos = errors.New("as the scenario has it")

// Inventory implements Runtime: without fresh, what was listed last.
func (w *chaos) Inventory(ctx context.Context, fresh bool) Inventory {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !fresh {
		return w.listed
	}
	if now := w.now(); now < w.hung {
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(freshWait):
		}
		w.mu.Lock()
	}
	if w.runtimeOK(w.now()) {
		w.listed = Inventory{Pods: w.list(), At: w.now()}
	} else {
		w.listed.Err = errChaos
	}
	return w.listed
}

// Reclaim implements Reclaimer.
func (w *chaos) Reclaim(ctx context.Context, m policy.Met, _ policy.Layout, _ []Pod) ReliefJob {
	if m.Signal.Class() != policy.ClassDisk {
		return finishedRelief{}
	}
	j := &reliefJob{done: make(chan struct{})}
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
			j.relief = Relief{Steps: []string{"images"}, Freed: freed}
		}
	})
	return j
}

// chaosStop is a stop as it goes on a node in trouble.
type chaosStop struct {
	done     chan struct{}
	escalate chan struct{}
	once     sync.Once
	outcome  StopOutcome
}

func (s *chaosStop) Done() <-chan struct{} { return s.done }
func (s *chaosStop) Escalate(bool)         { s.once.Do(func() { close(s.escalate) }) }
func (s *chaosStop) Outcome() StopOutcome  { return s.outcome }

// Stop implements Stopper.
func (w *chaos) Stop(ctx context.Context, o StopOrder) StopJob {
	s := &chaosStop{done: make(chan struct{}), escalate: make(chan struct{})}
	w.mu.Lock()
	p := w.find(o.Pod.ID)
	wait := w.pick(time.Millisecond, 60*time.Millisecond)
	switch {
	case o.Direct || p == nil:
	case !w.runtimeOK(w.now()):
		wait += w.cfg.Eviction.StopTimeout // the fallback kills
	case o.Grace > 0 && p.deaf:
		wait += o.Grace
	}
	w.mu.Unlock()
	w.jobs.Go(func() {
		defer close(s.done)
		end := ctx.Done()
		if o.Direct {
			end = nil // SIGKILL has been sent: whoever sent it is not needed any more
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
		s.outcome.Result = StopResult{Emptied: true, EmptiedIn: wait, Confirmed: w.runtimeOK(w.now()), Method: "direct"}
	})
	return s
}
