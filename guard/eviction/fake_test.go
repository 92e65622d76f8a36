package eviction

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// fakeNode is a node that the test controls: its signals, its pods and the results of jobs.
type fakeNode struct {
	cpus       int
	layout     policy.Layout
	inMemory   bool // the layers
	now        time.Duration
	obs        policy.Observations
	pods       []inventory.Pod
	podsMemory policy.Amount   // working set of the pods cgroup
	hidden     []inventory.Pod // running pods that only a fresh listing finds
	foreign    int64           // usage of a pod that no listing finds; 0 = no such pod
	forgot     int             // calls of ForgetStalls
	saved      []byte          // the restraint, for the next Manager
	sought     time.Duration   // when the unlisted pods were first searched for
	confirmed  bool
	listed     int
	onListing  func() // called by a fresh listing, which takes time
	listedAt   time.Duration
	diskAge    time.Duration // of the measurement of the pods' disks
	down       bool          // the runtime does not answer
	busy       bool          // it does not answer a listing in time
	inProgress bool          // a listing was in progress when the next one was asked for, and ends first
	early      bool          // it has the hidden pods and the renewed containers, too
	reliefs    []*fakeRelief
	stops      []*fakeStop
	slow       bool                     // reclaim jobs for disks run until the test ends them
	swapping   bool                     // so do reclaim jobs for memory, swap and PIDs
	renewed    map[string]inventory.Pod // pods whose running containers are not the listed ones
	unasked    bool                     // the disk usage of a running pod was not measured
	cut        bool                     // every reclaim is inconclusive
	late       bool                     // a slow disk ends every reclaim
	away       bool                     // the runtime does not answer a reclaim
	reports    []reclaim.Report         // of every reclaim
	diskLag    time.Duration            // age of the disk readings
	reclaimed  []policy.Met
	measured   int
	// remains is what the cgroups of a sandbox still hold. Without an entry, a sandbox holds its memory
	// until end removes it.
	remains map[string]policy.Amount
}

func (n *fakeNode) Now() time.Duration               { return n.now }
func (n *fakeNode) Observe(obs *policy.Observations) { *obs = n.obs; n.stamp(obs) }
func (n *fakeNode) Layout() policy.Layout            { return n.layout }
func (n *fakeNode) LayersInMemory() bool             { return n.inMemory }
func (n *fakeNode) CPUs() int                        { return max(n.cpus, 1) }
func (n *fakeNode) PodsMemory() policy.Amount        { return n.podsMemory }
func (n *fakeNode) ConfirmUnlisted(at time.Duration) { n.confirmed = n.confirmed || at >= n.sought }

func (n *fakeNode) stamp(obs *policy.Observations) {
	for s := range obs {
		if obs[s].At = n.now; policy.Signal(s).IsDisk() {
			obs[s].At -= n.diskLag
		}
	}
}

// Measure reads the pods again, unlike the listing from which the candidates were made.
func (n *fakeNode) Measure(cs []policy.Candidate) {
	n.measured++
	for i := range cs {
		if p := inventory.ByID(n.pods, cs[i].ID); p != nil {
			cs[i].Memory, cs[i].Swap, cs[i].PIDs = p.Memory, p.Swap, p.PIDs
			cs[i].DiskAt = n.now - n.diskAge
		}
	}
}

func (n *fakeNode) DiskUsage(sandbox string) (bytes, inodes policy.DiskUsage) {
	if p := inventory.ByID(n.pods, sandbox); p != nil {
		return p.Disk, p.Inodes
	}
	return policy.DiskUsage{}, policy.DiskUsage{}
}

func (n *fakeNode) Remaining(pod inventory.Pod, p policy.Pool) policy.Amount {
	running := inventory.ByID(n.pods, pod.ID)
	a, remains := n.remains[pod.ID]
	switch {
	case remains && p == policy.PoolPIDs && running != nil && running.Memory == policy.Known(0): // only files are left
		return policy.Known(0)
	case remains:
		return a
	case running == nil:
		return policy.Known(0)
	case p == policy.PoolPIDs:
		return running.PIDs
	default:
		return running.Memory
	}
}

func (n *fakeNode) Unlisted(_ []inventory.Pod, s policy.Signal) (int64, bool) {
	if s.IsDisk() {
		if n.unasked {
			return math.MaxInt64, true
		}
		return 0, false
	}
	n.sought = cmp.Or(n.sought, n.now)
	var largest int64
	for i := range n.hidden {
		largest = max(largest, n.hidden[i].Memory.Value)
	}
	return max(largest, n.foreign), len(n.hidden) > 0 || n.foreign > 0 && !n.confirmed
}

func (n *fakeNode) ForgetStalls() { n.forgot++ }

func (n *fakeNode) UnlistedIn(p inventory.Pod) []string {
	if _, ok := n.renewed[p.ID]; ok {
		return []string{p.Cgroup + "/new"}
	}
	running := inventory.ByID(n.pods, p.ID)
	if running == nil {
		return nil
	}
	var unlisted []string
	for _, c := range running.Containers {
		if !slices.ContainsFunc(p.Containers, func(o inventory.Container) bool { return o.ID == c.ID }) {
			unlisted = append(unlisted, p.Cgroup+"/"+c.ID)
		}
	}
	return unlisted
}

func (n *fakeNode) Inventory(_ context.Context, wait time.Duration) inventory.Inventory {
	if wait > 0 {
		if n.onListing != nil {
			n.onListing()
		}
		n.listed++
		inProgress := n.inProgress
		if n.inProgress = false; inProgress {
			n.listedAt = n.now - time.Nanosecond
		} else if !n.down && !n.busy {
			n.listedAt = n.now
		}
		if inProgress && n.early || !inProgress && !n.down && !n.busy {
			n.pods, n.hidden = append(n.pods, n.hidden...), nil
			for i := range n.pods {
				if p, ok := n.renewed[n.pods[i].ID]; ok {
					n.pods[i] = p
					delete(n.renewed, p.ID)
				}
			}
		}
		if inProgress {
			return inventory.Inventory{At: n.listedAt, Pods: n.pods}
		}
	}
	if n.down {
		return inventory.Inventory{At: n.listedAt, Pods: n.pods, Err: cri.ErrNoRuntime}
	}
	return inventory.Inventory{At: n.listedAt, Pods: n.pods}
}

type fakeRelief struct {
	done  chan struct{}
	cut   bool
	late  bool
	away  bool
	over  bool // the reclaim takes too long
	would bool // it would be enough
	steps []string
	freed int64
	young int

	reports []reclaim.Report
}

func (f *fakeRelief) Done() <-chan struct{} { return f.done }
func (f *fakeRelief) Overdue() bool         { return f.over }
func (f *fakeRelief) Relief() Relief {
	return Relief{Inconclusive: f.cut, Late: f.late, Away: f.away, WouldRelieve: f.would, Steps: f.steps, Reports: f.reports, Freed: f.freed, YoungImages: f.young, YoungBytes: int64(f.young) * 110 * testMiB}
}

func (n *fakeNode) Reclaim(_ context.Context, m policy.Met, _ policy.Layout, _ []inventory.Pod) ReliefJob {
	n.reclaimed = append(n.reclaimed, m)
	r := &fakeRelief{done: make(chan struct{}), cut: n.cut, late: n.late, away: n.away, reports: n.reports}
	if disk := m.Signal.IsDisk(); !(disk && n.slow || !disk && n.swapping) {
		close(r.done)
	}
	n.reliefs = append(n.reliefs, r)
	return r
}

type fakeStop struct {
	order     StopOrder
	done      chan struct{}
	escalated int
	direct    bool     // argument of the last escalation
	found     []string // the other one
	outcome   StopOutcome
}

func (f *fakeStop) Done() <-chan struct{} { return f.done }
func (f *fakeStop) Escalate(direct bool, unlisted []string) {
	f.escalated++
	f.direct, f.found = direct, unlisted
}
func (f *fakeStop) Discard(containers, logs bool) {
	f.order.Discard, f.order.DiscardLogs = containers, logs
}
func (f *fakeStop) Outcome() StopOutcome { return f.outcome }

func (n *fakeNode) Stop(_ context.Context, o StopOrder) StopJob {
	s := &fakeStop{order: o, done: make(chan struct{})}
	n.stops = append(n.stops, s)
	return s
}

// kill finishes a stop that emptied its containers. The pod stays listed, with what it holds.
func (n *fakeNode) kill(s *fakeStop) {
	s.outcome.Result.Emptied = true
	close(s.done)
}

// end is kill for a pod that holds nothing any more and is not listed.
func (n *fakeNode) end(s *fakeStop) {
	n.kill(s)
	n.pods = slices.DeleteFunc(slices.Clone(n.pods), func(p inventory.Pod) bool { return p.ID == s.order.Pod.ID })
}

// free is end for the last stop. The node has as much memory available then.
func (n *fakeNode) free(available int64) {
	n.end(n.stops[len(n.stops)-1])
	n.set(policy.MemoryAvailable, available)
}

const (
	testMiB = 1 << 20
	testGiB = 1 << 30
)

func (n *fakeNode) set(s policy.Signal, available int64) {
	n.obs[s] = policy.Observation{Available: available, Capacity: 16 * testGiB, Status: policy.OK}
}

// grow lets a pod take memory.
func (n *fakeNode) grow(id string, by int64) {
	for i := range n.pods {
		if n.pods[i].ID == id {
			n.pods[i].Memory.Value += by
		}
	}
}

// leak lets a pod take memory until that much is available.
func (n *fakeNode) leak(id string, available int64) {
	n.grow(id, n.obs[policy.MemoryAvailable].Available-available)
	n.set(policy.MemoryAvailable, available)
}

// protect protects all pods, or none if by is "".
func (n *fakeNode) protect(by string) {
	for i := range n.pods {
		n.pods[i].Protection = by
	}
}

// appear adds a pod that has just been created, for the workload of that name.
func (n *fakeNode) appear(name, id string, memory int64) {
	p := testPod(name, memory)
	p.ID, p.Created = id, n.now
	n.pods = append(n.pods, p)
}

func testPod(name string, memory int64) inventory.Pod {
	return inventory.Pod{Grace: 30 * time.Second, Containers: []inventory.Container{{ID: name + "-c"}}, Candidate: policy.Candidate{
		ID: name, Namespace: "d", Name: name, UID: name, Workload: "d/" + name, QoS: policy.BestEffort, Memory: policy.Known(memory),
		PIDs: policy.Known(10), Disk: diskBytes(memory), Inodes: diskBytes(100), Created: time.Minute,
	}}
}

// diskBytes returns the disk usage of a pod that has written only to its writable layers.
func diskBytes(n int64) policy.DiskUsage {
	return policy.DiskUsage{Rootfs: policy.Exactly(n), Logs: policy.Exactly(0), Volumes: policy.Exactly(0)}
}

// newManager returns a Manager of a fake node, with that configuration.
func newManager(t testing.TB, conf string) (*Manager, *fakeNode) {
	t.Helper()
	n := &fakeNode{now: time.Hour, pods: []inventory.Pod{testPod("big", 4*testGiB), testPod("small", testGiB)}, remains: map[string]policy.Amount{}}
	n.set(policy.MemoryAvailable, 8*testGiB)
	return New(configtest.Parse(t, conf), n, n, n, n, nil, policy.NewRestraint("boot")), n
}

// restarted returns a Manager of the same node, with the restraint and the samples that g would leave to the next run.
func restarted(t *testing.T, g *Manager, n *fakeNode) *Manager {
	t.Helper()
	n.save(t, g)
	return killed(t, g, n)
}

// save writes what the next Manager knows of the stops.
func (n *fakeNode) save(t *testing.T, g *Manager) {
	t.Helper()
	saved, err := json.Marshal(g.Saved())
	if err != nil {
		t.Fatal(err)
	}
	n.saved = saved
}

// killed is restarted for a service that did not end in order: what was last saved counts.
func killed(t *testing.T, g *Manager, n *fakeNode) *Manager {
	t.Helper()
	r, err := policy.LoadRestraint(n.saved, "boot", n.now)
	if err != nil {
		t.Fatal(err)
	}
	next := New(g.cfg, n, n, n, n, nil, r)
	saved, err := json.Marshal(g.samples.Saved("boot"))
	if err != nil {
		t.Fatal(err)
	}
	if next.samples, err = policy.LoadSamples(saved, "boot", n.now); err != nil {
		t.Fatal(err)
	}
	return next
}

// sleep lets the machine sleep.
func (n *fakeNode) sleep(g *Manager, d time.Duration) {
	n.now += d
	g.Slept(d)
}

// at moves the clock to an hour plus d and makes a pass.
func (n *fakeNode) at(g *Manager, d time.Duration) api.Pass {
	n.now = time.Hour + d
	return g.Pass(context.Background(), "test")
}

// newDiskManager returns a Manager with only a disk threshold. Its reclaims run until the test ends them.
func newDiskManager(t *testing.T) (*Manager, *fakeNode) {
	t.Helper()
	g, n := newManager(t, disksAlone+"\"nodefs.available\" = \"1Gi\"\n")
	n.slow = true
	return g, n
}

// stopped returns the pod that a pass stops, or "".
func stopped(p *api.Pass) string {
	if p.Stop == nil {
		return ""
	}
	return p.Stop.Pod
}

// wantStop fails the test unless the pass stops that pod.
func wantStop(t *testing.T, p api.Pass, pod string) {
	t.Helper()
	if stopped(&p) != pod {
		t.Fatalf("stopped %q, held by %q, want a stop of %s; need %+v", stopped(&p), p.Held, pod, p.Need)
	}
}

// wantHeld fails the test unless the pass stops no pod, for that reason.
func wantHeld(t *testing.T, p api.Pass, held string) {
	t.Helper()
	if p.Stop != nil || p.Held != held {
		t.Fatalf("stopped %q, held by %q, want it held by %q; need %+v", stopped(&p), p.Held, held, p.Need)
	}
}

// wantSettled fails the test unless as many stops are over in the pass.
func wantSettled(t *testing.T, p api.Pass, stops int) {
	t.Helper()
	if len(p.Settled) != stops {
		t.Fatalf("settled %+v, want %d", p.Settled, stops)
	}
}

// Configurations of thresholds.
const (
	disksAlone  = "[eviction.hard]\n\"memory.available\" = \"0%\"\n"
	twoOfADisk  = disksAlone + "\"nodefs.available\" = \"4Gi\"\n\"nodefs.inodesFree\" = \"100\"\n"
	memoryHard  = "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n"
	softAndHard = `
[eviction]
max_pod_grace_period = "20s"
[eviction.hard]
"memory.available" = "1Gi"
"pid.available" = "100"
[eviction.soft]
"memory.available" = "2Gi"
[eviction.soft_grace_period]
"memory.available" = "10s"
`
)
