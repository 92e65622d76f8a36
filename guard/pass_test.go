package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
)

// fakeNode is a node under control: what it observes, what it runs, and what
// becomes of jobs.
type fakeNode struct {
	layout    policy.Layout
	now       time.Duration
	obs       policy.Observations
	pods      []Pod
	hidden    []Pod // run, but are listed only afresh
	foreign   int64 // what a pod uses that no listing has; 0 = there is none
	outlived  bool
	listed    int
	listedAt  time.Duration
	down      bool // the runtime does not answer
	reliefs   []*fakeRelief
	stops     []*fakeStop
	slow      bool           // reclaim jobs for disks wait to be finished
	swapping  bool           // and those for memory
	renewed   map[string]Pod // pods in which other containers run than were listed
	unasked   bool           // a pod runs of which it was not measured what it uses of the disks
	cut       bool           // no reclaim is conclusive
	late      bool           // each is ended by a slow disk
	diskLag   time.Duration  // how old what is read of disks is
	reclaimed []policy.Signal
}

func (n *fakeNode) Now() time.Duration               { return n.now }
func (n *fakeNode) Observe(obs *policy.Observations) { *obs = n.obs; n.stamp(obs) }
func (n *fakeNode) Layout() policy.Layout            { return n.layout }
func (n *fakeNode) stamp(obs *policy.Observations) {
	for s := range obs {
		if obs[s].At = n.now; policy.Signal(s).IsDisk() {
			obs[s].At -= n.diskLag
		}
	}
}

func (n *fakeNode) Measure(_ []policy.Candidate, _ []Pod, s policy.Signal) (int64, bool) {
	if s.IsDisk() {
		if n.unasked {
			return math.MaxInt64, true
		}
		return 0, false
	}
	var largest int64
	for i := range n.hidden {
		largest = max(largest, n.hidden[i].Memory.Value)
	}
	return max(largest, n.foreign), len(n.hidden) > 0 || n.foreign > 0 && !n.outlived
}

func (n *fakeNode) Outlived() { n.outlived = true }

func (n *fakeNode) HasUnlisted(p Pod) bool {
	_, ok := n.renewed[p.ID]
	return ok
}

func (n *fakeNode) Inventory(_ context.Context, fresh bool) Inventory {
	if fresh {
		n.listed++
		for i := range n.pods {
			if p, ok := n.renewed[n.pods[i].ID]; ok && !n.down {
				n.pods[i] = p
				delete(n.renewed, p.ID)
			}
		}
	}
	if fresh && !n.down {
		n.pods, n.hidden, n.listedAt = append(n.pods, n.hidden...), nil, n.now
	}
	if n.down {
		return Inventory{Pods: n.pods, Err: ErrNoRuntime}
	}
	return Inventory{At: n.listedAt, Pods: n.pods}
}

type fakeRelief struct {
	done  chan struct{}
	cut   bool
	late  bool
	steps []string
}

func (f *fakeRelief) Done() <-chan struct{} { return f.done }
func (f *fakeRelief) Relief() Relief {
	return Relief{Inconclusive: f.cut, Late: f.late, Steps: f.steps}
}

func (n *fakeNode) Reclaim(_ context.Context, m policy.Met, _ policy.Layout, _ []Pod) ReliefJob {
	n.reclaimed = append(n.reclaimed, m.Signal)
	r := &fakeRelief{done: make(chan struct{}), cut: n.cut, late: n.late}
	if disk := m.Signal.Class() == policy.ClassDisk; !(disk && n.slow || !disk && n.swapping) {
		close(r.done)
	}
	n.reliefs = append(n.reliefs, r)
	return r
}

type fakeStop struct {
	order     StopOrder
	done      chan struct{}
	escalated int
	direct    bool // by the last escalation
	outcome   StopOutcome
}

func (f *fakeStop) Done() <-chan struct{} { return f.done }
func (f *fakeStop) Escalate(direct bool)  { f.escalated++; f.direct = direct }
func (f *fakeStop) Outcome() StopOutcome  { return f.outcome }

func (n *fakeNode) Stop(_ context.Context, o StopOrder) StopJob {
	s := &fakeStop{order: o, done: make(chan struct{})}
	n.stops = append(n.stops, s)
	return s
}

// end ends a stop that emptied its containers, and takes the pod away.
func (n *fakeNode) end(s *fakeStop) {
	s.outcome.Result.Emptied = true
	close(s.done)
	for i := range n.pods {
		if n.pods[i].ID == s.order.Pod.ID {
			n.pods = append(n.pods[:i:i], n.pods[i+1:]...)
			return
		}
	}
}

const testGiB = 1 << 30

func (n *fakeNode) set(s policy.Signal, available int64) {
	n.obs[s] = policy.Observation{Available: available, Capacity: 16 * testGiB, Status: policy.OK}
}

func testPod(name string, memory int64) Pod {
	return Pod{Grace: 30 * time.Second, Candidate: policy.Candidate{
		ID: name, Namespace: "d", Name: name, UID: name, Workload: "d/" + name, QoS: policy.BestEffort, Memory: policy.Known(memory),
		PIDs: policy.Known(10), Disk: policy.DiskUsage{Rootfs: memory, Known: true}, Inodes: policy.DiskUsage{Rootfs: 1, Known: true},
	}}
}

// newPassGuard is a guard over a fake node with the given thresholds.
func newPassGuard(t *testing.T, config string) (*Guard, *fakeNode) {
	t.Helper()
	cfg, err := ParseConfig("test", strings.NewReader(config))
	if err != nil {
		t.Fatal(err)
	}
	n := &fakeNode{now: time.Hour, pods: []Pod{testPod("big", 4*testGiB), testPod("small", testGiB)}}
	n.set(policy.MemoryAvailable, 8*testGiB)
	return New(cfg, n, n, n, n, policy.NewRestraint("boot")), n
}

// at moves the clock and makes a pass.
func (n *fakeNode) at(g *Guard, d time.Duration) Pass {
	n.now = time.Hour + d
	return g.Pass(context.Background(), "test")
}

// newDiskGuard guards nothing but a disk, whose reclaims wait to be finished.
func newDiskGuard(t *testing.T) (*Guard, *fakeNode) {
	t.Helper()
	g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"0%\"\n\"nodefs.available\" = \"1Gi\"\n")
	n.slow = true
	return g, n
}

// stopsAfterReclaim finishes the last reclaim that was begun: the next pass stops somebody.
func stopsAfterReclaim(t *testing.T, g *Guard, n *fakeNode, d time.Duration) {
	t.Helper()
	close(n.reliefs[len(n.reliefs)-1].done)
	if p := n.at(g, d); p.Stop == nil {
		t.Errorf("not stopped, held by %q", p.Held)
	}
}

const softAndHard = `
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

func TestPassSoftThenEscalated(t *testing.T) {
	g, n := newPassGuard(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB+1)
	if p := n.at(g, 0); p.Stop != nil || p.Held != HeldGrace {
		t.Fatalf("at once: stop %v, held by %q", p.Stop, p.Held)
	}
	p := n.at(g, 10*time.Second)
	if p.Stop == nil || p.Stop.Pod != "d/big" || p.Stop.Grace != 20*time.Second || n.stops[0].order.Direct {
		t.Fatalf("after the grace period: %+v", p.Stop)
	}
	n.set(policy.MemoryAvailable, testGiB-1)
	p = n.at(g, 11*time.Second)
	if p.Escalated != "d/big" || n.stops[0].escalated != 1 || len(n.stops) != 1 {
		t.Fatalf("hard during the soft stop: escalated %q, %d stops", p.Escalated, len(n.stops))
	}
	if p = n.at(g, 12*time.Second); p.Escalated != "" || n.stops[0].escalated != 1 {
		t.Error("escalated twice")
	}
}

// A node that is suspended right after a soft threshold was met stops nobody for the night:
// the grace period goes on where it was, and what is told of it is what was seen.
func TestPassSuspendServesNoGrace(t *testing.T) {
	g, n := newPassGuard(t, strings.Replace(softAndHard, `"10s"`, `"30s"`, 1))
	n.set(policy.MemoryAvailable, testGiB+1)
	n.at(g, 0)
	n.at(g, time.Second)
	const woken = 8 * time.Hour
	for d := time.Duration(0); d < 19*time.Second; d += time.Second {
		p := n.at(g, woken+d)
		if p.Stop != nil || p.Held != HeldGrace || p.Met[0].For != 11*time.Second+d {
			t.Fatalf("%s after the suspend: stop %+v, held by %q, %+v", d, p.Stop, p.Held, p.Met)
		}
	}
	if p := n.at(g, woken+19*time.Second); p.Stop == nil || !strings.Contains(p.Stop.Reason, "for 30s") {
		t.Errorf("after the grace period: %+v, held by %q", p.Stop, p.Held)
	}
}

// The time from the crossing to the end of the last process counts the grace period
// that ran before the stop, and nothing after it.
func TestPassTellsCrossingToDead(t *testing.T) {
	g, n := newPassGuard(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB+1)
	n.at(g, 0)
	n.at(g, 10*time.Second)
	n.stops[0].outcome.Result.EmptiedIn = 20 * time.Millisecond
	n.end(n.stops[0])
	n.set(policy.MemoryAvailable, 8*testGiB)
	if p := n.at(g, 15*time.Second); len(p.Settled) != 1 || p.Settled[0].Result.DeadIn != 10*time.Second+20*time.Millisecond {
		t.Errorf("settled %+v", p.Settled[0].Result)
	}
}

// A soft stop never delays a hard one of another resource.
func TestPassSoftDoesNotDelayHard(t *testing.T) {
	g, n := newPassGuard(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB+1)
	n.at(g, 0)
	n.at(g, 10*time.Second)
	n.obs[policy.PIDAvailable] = policy.Observation{Available: 1, Capacity: 32768, Status: policy.OK}
	if p := n.at(g, 11*time.Second); p.Stop == nil || p.Stop.Signal != "pid.available" || len(n.stops) != 2 {
		t.Errorf("PIDs during a soft memory stop: %+v", p.Stop)
	}
}

// One victim at a time: the next is chosen when 80 % of the bytes are back, or
// after 5 s.
func TestPassWaitsForRelief(t *testing.T) {
	g, n := newPassGuard(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Grace != 0 || !n.stops[0].order.Direct {
		t.Fatalf("hard memory: %+v", p.Stop)
	}
	if p := n.at(g, time.Second); p.Stop != nil || p.Held != HeldInFlight {
		t.Errorf("while it runs: %+v, held by %q", p.Stop, p.Held)
	}
	n.end(n.stops[0])
	if p := n.at(g, 2*time.Second); p.Stop != nil || p.Held != HeldInFlight {
		t.Errorf("before the bytes are back: %+v, held by %q", p.Stop, p.Held)
	}
	p := n.at(g, 7*time.Second)
	if p.Stop == nil || p.Stop.Pod != "d/small" || len(p.Settled) != 1 || p.Settled[0].Result.Moved {
		t.Errorf("after 5 s: %+v, settled %+v", p.Stop, p.Settled)
	}
}

// What a stopped pod left on a disk is waited for, by all that is about disks and by
// nothing else.
func TestPassWaitsForRemoval(t *testing.T) {
	g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"nodefs.available\" = \"1Gi\"\n\"nodefs.inodesFree\" = \"100\"\n")
	n.set(policy.NodeFSAvailable, 0)
	n.set(policy.NodeFSInodesFree, 1000)
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Pod != "d/big" {
		t.Fatalf("full disk: %+v", p.Stop)
	}
	n.end(n.stops[0])
	n.at(g, time.Second)
	n.obs[policy.NodeFSInodesFree] = policy.Observation{Available: 99, Capacity: 1000, Status: policy.OK}
	if p := n.at(g, 25*time.Second); p.Stop != nil || p.Held != HeldInFlight {
		t.Errorf("while it is being removed: %+v, held by %q", p.Stop, p.Held)
	}
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 26*time.Second); p.Stop == nil || p.Stop.Pod != "d/small" || p.Stop.Signal != "memory.available" {
		t.Errorf("memory meanwhile: %+v, held by %q", p.Stop, p.Held)
	}
	n.set(policy.MemoryAvailable, 8*testGiB)
	n.set(policy.NodeFSAvailable, 4*testGiB)
	if p := n.at(g, 27*time.Second); len(p.Settled) != 1 || !p.Settled[0].Result.Moved {
		t.Errorf("when the bytes are back: %+v", p.Settled)
	}
}

// A removal that does not come to an end is not waited for in vain.
func TestPassGivesRemovalUp(t *testing.T) {
	g, n := newPassGuard(t, "[eviction.hard]\n\"nodefs.available\" = \"1Gi\"\n")
	n.set(policy.NodeFSAvailable, 0)
	n.at(g, 0)
	n.end(n.stops[0])
	n.at(g, time.Second)
	if p := n.at(g, time.Second+policy.ReliefWait(policy.NodeFSAvailable)); len(p.Settled) != 1 || p.Settled[0].Result.Moved {
		t.Errorf("settled %+v", p.Settled)
	}
}

// A stop that killed nothing costs no budget and moves on to the next.
func TestPassNothingKilled(t *testing.T) {
	g, n := newPassGuard(t, softAndHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	n.at(g, 0)
	n.stops[0].outcome.Nothing = true
	close(n.stops[0].done)
	p := n.at(g, time.Second)
	if p.Stop == nil || p.Stop.Pod != "d/small" {
		t.Fatalf("next: %+v", p.Stop)
	}
	if left := g.restraint.Status(n.now).Hard.Left; left != 2 {
		t.Errorf("%d of 3 hard stops left, want 2: the one that killed nothing is given back", left)
	}
}

// A pod that has just started and is not listed yet is looked for before another
// one is taken for it.
func TestPassStrangers(t *testing.T) {
	g, n := newPassGuard(t, softAndHard)
	n.hidden = []Pod{testPod("new", 6*testGiB)}
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Pod != "d/new" || n.listed != 1 {
		t.Errorf("stopped %+v after %d fresh listings, want d/new after one", p.Stop, n.listed)
	}
}

// A reclaim that a slow disk ended serves no stop, as what may go is there still; but where the
// disk is always slow and nothing goes, somebody must.
func TestPassLateReclaims(t *testing.T) {
	g, n := newDiskGuard(t)
	n.late = true
	for i := range remeasureAtMost + 1 {
		n.set(policy.NodeFSAvailable, 0)
		p := n.at(g, time.Duration(2*i)*time.Second)
		if p.Stop != nil || p.Held != HeldReclaiming {
			t.Fatalf("%d: stopped %+v, held by %q", i, p.Stop, p.Held)
		}
		close(n.reliefs[i].done)
		p = n.at(g, time.Duration(2*i+1)*time.Second)
		if last := i == remeasureAtMost; (p.Stop != nil) != last {
			t.Fatalf("after %d late reclaims: stopped %+v, held by %q", i+1, p.Stop, p.Held)
		}
	}
}

// A pod that no listing has, as another runtime's, is asked for once, not before each stop: that
// takes the time in which a leak takes the rest. Where it may be the cause, it is.
func TestPassOutlivedStranger(t *testing.T) {
	for usage, want := range map[int64]int{testMiB: 1, 100 * testGiB: 2} {
		g, n := newPassGuard(t, softAndHard)
		n.foreign, n.pods = usage, []Pod{testPod("a", 4*testGiB), testPod("b", 4*testGiB)}
		for i := range 2 {
			n.set(policy.MemoryAvailable, testGiB/2)
			p := n.at(g, time.Duration(i)*time.Second)
			if (p.Stop != nil) != (usage == testMiB) {
				t.Errorf("beside one of %d: stopped %+v, held by %q", usage, p.Stop, p.Held)
			}
			if p.Stop == nil {
				continue
			}
			n.end(n.stops[i])
			n.pods = slices.DeleteFunc(n.pods, func(pod Pod) bool { return pod.ID == p.Stop.Sandbox })
			n.set(policy.MemoryAvailable, 8*testGiB)
			n.at(g, time.Duration(i)*time.Second)
		}
		if n.listed != want {
			t.Errorf("beside one of %d: listed %d times afresh, want %d", usage, n.listed, want)
		}
	}
}

// To answer who would be first, nobody asks the runtime.
func TestRankDoesNotList(t *testing.T) {
	g, n := newPassGuard(t, softAndHard)
	n.hidden = []Pod{testPod("new", 6*testGiB)}
	n.at(g, 0)
	if r := g.rankNow(t.Context(), policy.MemoryAvailable); n.listed != 0 || len(r.Pods) != 2 || r.Pods[0].Pod != "d/big" || r.Available != 8*testGiB {
		t.Errorf("%d fresh listings for %+v", n.listed, r)
	}
}

// A pod that cannot be listed now may be the cause: no pod that uses less is stopped
// in its place.
func TestPassUnlisted(t *testing.T) {
	for usage, want := range map[int64]string{6 * testGiB: "", testGiB: "d/big"} {
		g, n := newPassGuard(t, softAndHard)
		n.hidden, n.down = []Pod{testPod("new", usage)}, true
		n.set(policy.MemoryAvailable, testGiB/2)
		p := n.at(g, 0)
		if want == "" {
			if p.Stop != nil || p.Held != HeldUnlisted {
				t.Errorf("while one runs that uses more: stopped %+v, held by %q", p.Stop, p.Held)
			}
			n.down = false
			if p := n.at(g, time.Second); p.Stop == nil || p.Stop.Pod != "d/new" {
				t.Errorf("listed again: stopped %+v, want d/new", p.Stop)
			}
		} else if p.Stop == nil || p.Stop.Pod != want {
			t.Errorf("while one runs that uses less: stopped %+v, want %s", p.Stop, want)
		}
	}
}

// A container that was started in place of a listed one is what is stopped, unless the
// pod is gone or turns out to be protected, or nothing is short any more.
func TestPassContainerRestarted(t *testing.T) {
	for name, tt := range map[string]struct {
		renew func(*Pod)
		want  string
	}{
		"its new container": {func(p *Pod) { p.Containers = []PodContainer{{ID: "new"}} }, "new"},
		"protected":         {func(p *Pod) { p.Protection = "critical" }, ""},
		"another sandbox":   {func(p *Pod) { p.ID = "big2" }, ""},
	} {
		g, n := newPassGuard(t, softAndHard)
		n.pods[0].Containers = []PodContainer{{ID: "old"}}
		renewed := n.pods[0]
		tt.renew(&renewed)
		n.renewed = map[string]Pod{"big": renewed}
		n.set(policy.MemoryAvailable, testGiB/2)
		p := n.at(g, 0)
		switch {
		case n.listed != 1:
			t.Errorf("%s: listed afresh %d times", name, n.listed)
		case tt.want == "" && (p.Stop != nil || p.Held != HeldNoCandidate):
			t.Errorf("%s: stopped %+v, held by %q", name, p.Stop, p.Held)
		case tt.want != "" && (p.Stop == nil || n.stops[0].order.Pod.Containers[0].ID != tt.want):
			t.Errorf("%s: stopped %+v", name, p.Stop)
		}
	}
}

// What holds one signal back, or makes it unreadable, leaves the others alone.
func TestPassSignalsAreIndependent(t *testing.T) {
	g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"nodefs.available\" = \"1Gi\"\n\"pid.available\" = \"100\"\n")
	n.slow = true
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.obs[policy.MemoryAvailable].Status = policy.Failed
	if p := n.at(g, 0); p.Held != HeldReclaiming || len(n.stops) != 0 {
		t.Fatalf("disk: held by %q, %d stops", p.Held, len(n.stops))
	}
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, time.Second); p.Stop == nil || p.Stop.Signal != "memory.available" {
		t.Errorf("memory while the disk is being reclaimed: %+v", p.Stop)
	}
}

// A disk that reclaiming relieved stops nobody, though another signal is met.
func TestPassReclaimSpares(t *testing.T) {
	g, n := newDiskGuard(t)
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.at(g, 0)
	n.set(policy.NodeFSAvailable, 2*testGiB)
	close(n.reliefs[0].done)
	if p := n.at(g, time.Second); p.Stop != nil || p.Held != "" {
		t.Errorf("after the reclaim: %+v, held by %q", p.Stop, p.Held)
	}
}

// A reclaim that relieved serves no later stop: others may use its space up, and then
// what each pod uses has to be measured again.
func TestPassReclaimsAfresh(t *testing.T) {
	g, n := newDiskGuard(t)
	n.set(policy.NodeFSAvailable, testGiB/2)
	n.at(g, 0)
	n.set(policy.NodeFSAvailable, 2*testGiB)
	close(n.reliefs[0].done)
	n.at(g, time.Second)
	n.set(policy.NodeFSAvailable, testGiB/2)
	if p := n.at(g, 2*time.Second); p.Stop != nil || len(n.reliefs) != 2 {
		t.Fatalf("full again: stop %+v after %d reclaims, want none before a second one", p.Stop, len(n.reliefs))
	}
	stopsAfterReclaim(t, g, n, 3*time.Second)
}

// What was measured before a disk was full again tells nothing of who has filled it since.
func TestPassMeasuresAfresh(t *testing.T) {
	g, n := newDiskGuard(t)
	for i, room := range []int64{testGiB / 2, 2 * testGiB, testGiB / 2} {
		n.set(policy.NodeFSAvailable, room)
		n.at(g, time.Duration(i)*time.Second)
	}
	close(n.reliefs[0].done)
	if p := n.at(g, 3*time.Second); p.Stop != nil {
		t.Errorf("stopped %s by what was measured before", p.Stop.Pod)
	}
	if p := n.at(g, 4*time.Second); p.Stop != nil || len(n.reliefs) != 2 {
		t.Fatalf("stopped %+v after %d reclaims", p.Stop, len(n.reliefs))
	}
	stopsAfterReclaim(t, g, n, 5*time.Second)
}

// A pod that came after the others were measured may be what fills the disk: nobody is
// taken for it before it was measured, too. Where another one comes each time, somebody
// must go.
func TestPassUnmeasured(t *testing.T) {
	for _, c := range []struct {
		name     string
		measured int // with which reclaim the pod is
		stop     int // with which one somebody is stopped
	}{{"once", 2, 2}, {"never", math.MaxInt, 1 + remeasureAtMost}} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newDiskGuard(t)
			n.unasked = true
			n.set(policy.NodeFSAvailable, testGiB/2)
			n.at(g, 0)
			for i := 1; ; i++ {
				n.unasked = i < c.measured
				close(n.reliefs[i-1].done)
				p := n.at(g, time.Duration(i)*time.Second)
				if i == c.stop {
					if p.Stop == nil {
						t.Errorf("not stopped, held by %q", p.Held)
					}
					return
				}
				if p.Stop != nil || p.Held != HeldReclaiming || len(n.reliefs) != i+1 {
					t.Fatalf("after %d reclaims: stopped %+v, held by %q, %d reclaims begun", i, p.Stop, p.Held, len(n.reliefs))
				}
			}
		})
	}
}

// What a stopped pod wrote to the pressed disk is freed with its dead containers and their logs, at
// once, unless they are not to be collected.
func TestPassDiscards(t *testing.T) {
	for _, c := range []struct {
		name, config string
		signal       policy.Signal
		layout       policy.Layout
		want, logs   bool
	}{
		{"disk", "", policy.NodeFSAvailable, policy.SingleFS, true, true},
		{"logs are elsewhere", "", policy.NodeFSAvailable, policy.SingleFS, true, false},
		{"the disk of the logs", "", policy.NodeFSAvailable, policy.DedicatedImageFS, false, true},
		{"the disk of the layers", "", policy.ImageFSAvailable, policy.DedicatedImageFS, true, false},
		{"memory", "", policy.MemoryAvailable, policy.SingleFS, false, false},
		{"containers are kept", "[containers]\ngc = false\n", policy.NodeFSAvailable, policy.SingleFS, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newPassGuard(t, c.config+"[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"nodefs.available\" = \"1Gi\"\n\"imagefs.available\" = \"1Gi\"\n")
			n.layout = c.layout
			for i := range n.pods {
				n.pods[i].Disk.Logs, n.pods[i].Disk.LogsApart = testGiB, c.name == "logs are elsewhere"
			}
			n.set(c.signal, testGiB/2)
			n.at(g, 0)
			if len(n.stops) != 1 || n.stops[0].order.Discard != c.want || n.stops[0].order.DiscardLogs != c.logs {
				t.Errorf("%d stops, want one that discards containers: %v, logs: %v", len(n.stops), c.want, c.logs)
			}
		})
	}
}

// restarted is a guard with what an earlier run left of its restraint, over the same node.
func restarted(t *testing.T, g *Guard, n *fakeNode) *Guard {
	t.Helper()
	saved, err := json.Marshal(g.restraint)
	if err != nil {
		t.Fatal(err)
	}
	r, err := policy.LoadRestraint(saved, "boot", n.now)
	if err != nil {
		t.Fatal(err)
	}
	return New(g.cfg, n, n, n, n, r)
}

// A breaker that an earlier run left open closes as soon as its signal is seen clear, and
// stays open while that is met.
func TestPassBreakerOfAnEarlierRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		first int64 // available at the first pass
		held  string
	}{{"clear", 8 * testGiB, ""}, {"met", testGiB / 2, HeldBreaker}} {
		t.Run(c.name, func(t *testing.T) {
			g, n := newPassGuard(t, softAndHard)
			for range 3 {
				g.restraint.Judge(policy.MemoryAvailable, false)
			}
			g = restarted(t, g, n)
			n.set(policy.MemoryAvailable, c.first)
			n.at(g, 0)
			if c.held == "" && !g.eased {
				t.Error("that the breaker closed is not told")
			}
			n.set(policy.MemoryAvailable, testGiB/2)
			if p := n.at(g, time.Second); p.Held != c.held || (p.Stop == nil) != (c.held != "") {
				t.Errorf("stopped %+v, held by %q, want %q", p.Stop, p.Held, c.held)
			}
		})
	}
}

// The hold-down of an earlier run goes on for as long as the condition may have, and no
// longer: then a workload that has come back is ranked as all others are.
func TestPassHoldDownOfAnEarlierRun(t *testing.T) {
	for at, want := range map[time.Duration][2]string{
		30 * time.Second: {"d/back", "ranks 2, was stopped 31s ago and has come back"}, 61 * time.Second: {"d/big", "ranks first"},
	} {
		g, n := newPassGuard(t, "eviction.pressure_transition_period = '1m'\neviction.hard.'memory.available' = '1Gi'\n")
		g.restraint.Take(policy.Hard, policy.MemoryAvailable, "d/back", n.now)
		g = restarted(t, g, n)
		back := testPod("back", testGiB)
		back.Created = n.now + time.Second
		n.pods = append(n.pods, back)
		n.at(g, at)
		n.set(policy.MemoryAvailable, testGiB/2)
		if p := n.at(g, at+time.Second); p.Stop == nil || p.Stop.Pod != want[0] || !strings.Contains(p.Stop.Reason, want[1]) {
			t.Errorf("after %s: stopped %+v, want %s", at, p.Stop, want)
		}
	}
}

// A stall with memory to spare stops nobody: not who comes back, not who is new, and it
// takes no grace period from a stop under way.
func TestPassStallWarns(t *testing.T) {
	stall := policy.Observation{Available: 500_000, Capacity: 1_000_000, Status: policy.OK}
	const (
		hardMemory = "eviction.hard.'memory.available' = '1Gi'\n"
		softMemory = "eviction.soft.'memory.available' = '2Gi'\neviction.soft_grace_period.'memory.available' = '10s'\n"
		hardStall  = "eviction.hard.'memory.stall' = '80%'\n"
		softStall  = "eviction.soft.'memory.stall' = '80%'\neviction.soft_grace_period.'memory.stall' = '1m'\n"
	)
	setup := func(t *testing.T, config string) (*Guard, *fakeNode) {
		g, n := newPassGuard(t, config)
		n.set(policy.MeminfoAvailable, 12*testGiB)
		return g, n
	}
	t.Run("returned", func(t *testing.T) {
		g, n := setup(t, hardMemory+softStall)
		n.set(policy.MemoryAvailable, testGiB/2)
		n.at(g, 0)
		n.end(n.stops[0])
		n.set(policy.MemoryAvailable, 12*testGiB)
		n.at(g, time.Second)
		back := testPod("big", testGiB)
		back.ID, back.Created = "again", time.Hour+2*time.Second
		n.pods = append(n.pods, back)
		n.obs[policy.MemoryStall] = stall
		if p := n.at(g, 20*time.Second); p.Stop != nil || p.Held != HeldGrace || !g.pressure.Met[0].WarnOnly {
			t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
		}
	})
	t.Run("new", func(t *testing.T) {
		g, n := setup(t, "admission.mode = 'stop'\n"+hardStall)
		n.obs[policy.MemoryStall] = stall
		n.at(g, 0)
		late := testPod("late", 1)
		late.Created = time.Hour + time.Second
		n.pods = append(n.pods, late)
		if p := n.at(g, 2*time.Second); p.Stop != nil || p.Held != HeldStallFloor || p.Conditions != 0 {
			t.Errorf("stopped %+v, held by %q, conditions %q", p.Stop, p.Held, p.Conditions)
		}
		n.set(policy.MeminfoAvailable, testGiB)
		if p := n.at(g, 3*time.Second); p.Stop == nil || p.Conditions != policy.ConditionsOf(policy.MemoryPressure) {
			t.Errorf("below the floor: stopped %+v, conditions %q", p.Stop, p.Conditions)
		}
	})
	t.Run("under way", func(t *testing.T) {
		g, n := setup(t, softMemory+hardStall)
		n.set(policy.MemoryAvailable, testGiB+1)
		n.at(g, 0)
		n.at(g, 10*time.Second)
		n.obs[policy.MemoryStall] = stall
		if p := n.at(g, 11*time.Second); p.Escalated != "" || n.stops[0].escalated != 0 {
			t.Errorf("escalated %q", p.Escalated)
		}
	})
}

func TestPassNeverStopsProtected(t *testing.T) {
	g, n := newPassGuard(t, softAndHard)
	for i := range n.pods {
		n.pods[i].Protection = "test"
	}
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 0); p.Stop != nil || p.Held != HeldProtected {
		t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
	}
}

func TestPassObserveMode(t *testing.T) {
	g, n := newPassGuard(t, "mode = \"observe\"\n"+softAndHard)
	n.set(policy.MemoryAvailable, testGiB/2)
	if p := n.at(g, 0); p.Stop == nil || !p.Stop.DryRun || len(n.stops) != 0 {
		t.Fatalf("first: %+v, %d stops", p.Stop, len(n.stops))
	}
	for i := range 5 {
		if p := n.at(g, time.Duration(i+1)*time.Minute); p.Stop != nil || p.Held != HeldObserve {
			t.Errorf("again: %+v, held by %q", p.Stop, p.Held)
		}
	}
}

// Where the kernel counts no pod's memory, whoever has the lowest priority is not to blame. What
// cannot be read for once, or of a few, disarms nothing.
func TestPassWithoutTheMemoryController(t *testing.T) {
	g, n := newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"pid.available\" = \"100\"\n")
	n.set(policy.MemoryAvailable, testGiB-1)
	for i := range n.pods {
		n.pods[i].Memory, n.pods[i].Uncounted = policy.Amount{}, true
	}
	for i := range 3 {
		if p := n.at(g, time.Duration(i)*time.Second); p.Stop != nil || p.Held != HeldUncounted || len(p.Ranked) != 2 {
			t.Errorf("stopped %+v, held by %q, %d ranked", p.Stop, p.Held, len(p.Ranked))
		}
	}
	for i := range n.pods {
		n.pods[i].Uncounted = false
	}
	if p := n.at(g, 3*time.Second); p.Stop == nil {
		t.Errorf("none could be read: held by %q", p.Held)
	}
	g, n = newPassGuard(t, "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n")
	n.set(policy.MemoryAvailable, testGiB-1)
	n.pods[0].Memory, n.pods[0].Uncounted = policy.Amount{}, true
	if p := n.at(g, 0); p.Stop == nil || p.Stop.Pod != "d/small" {
		t.Errorf("one is not counted: stopped %+v, held by %q", p.Stop, p.Held)
	}
}

// Admission stops what starts during pressure, a limit what is above it.
func TestPassEnforces(t *testing.T) {
	t.Run("admission", func(t *testing.T) {
		g, n := newPassGuard(t, "[admission]\nmode = \"stop\"\n[budget]\nbreaker = 0\n"+softAndHard)
		n.set(policy.MemoryAvailable, testGiB+1)
		n.at(g, 0)
		n.set(policy.MemoryAvailable, 8*testGiB) // the condition outlives its threshold
		late := testPod("late", 1)
		late.Created = time.Hour + time.Second
		n.pods = append(n.pods, late)
		p := n.at(g, 2*time.Second)
		if p.Stop == nil || p.Stop.Pod != "d/late" || p.Stop.Kind != kindAdmission {
			t.Errorf("stopped %+v, want d/late", p.Stop)
		}
	})
	t.Run("admission, of an age that is not known", func(t *testing.T) {
		g, n := newPassGuard(t, "[admission]\nmode = \"stop\"\n"+softAndHard)
		n.set(policy.MemoryAvailable, testGiB+1)
		n.at(g, 0)
		l := &lister{now: func() time.Duration { return n.now + time.Second }, clock: time.Now, last: map[string]listed{}}
		old := testPod("old", 1)
		old.Created = l.age(&cri.Sandbox{ID: old.ID, CreatedAt: time.Now().Add(time.Hour)})
		n.pods = append(n.pods, old)
		if p := n.at(g, 2*time.Second); p.Stop != nil || p.Held != HeldGrace {
			t.Errorf("stopped %+v, held by %q", p.Stop, p.Held)
		}
		g.restraint.Take(policy.Hard, policy.MemoryAvailable, old.Workload, time.Hour)
		if g.restraint.HoldDown(policy.MemoryAvailable, old.Workload, old.Created) {
			t.Error("it is taken for one that was stopped and has come back")
		}
	})
	t.Run("limit", func(t *testing.T) {
		g, n := newPassGuard(t, "[[limit]]\nname = \"*\"\nephemeral_storage = \"2Gi\"\n"+softAndHard)
		for i := range n.pods {
			n.pods[i].StorageLimit = 2 * testGiB
			d := &n.pods[i].Disk // a limit counts logs wherever they are
			d.Rootfs, d.Logs, d.LogsApart = 0, d.Rootfs, true
		}
		if p := n.at(g, 0); p.Stop == nil || p.Stop.Pod != "d/big" || p.Stop.Kind != kindLimit {
			t.Errorf("stopped %+v, want d/big", p.Stop)
		}
	})
}

// Who was refused under one condition is no victim of the next one before others, and the
// reclaim of a disk serves the stop that it was made for.
func TestPassEnforcesForNoDisk(t *testing.T) {
	g, n := newPassGuard(t, "admission.mode = 'stop'\neviction.hard.'nodefs.available' = '1Gi'\n"+
		"eviction.soft.'memory.available' = '2Gi'\neviction.soft_grace_period.'memory.available' = '1m'\n")
	n.set(policy.MemoryAvailable, testGiB+1)
	n.at(g, 0)
	late := testPod("late", 200<<20)
	late.Created = time.Hour + time.Second
	n.pods = append(n.pods, late)
	g.reliefs[policy.NodeFSAvailable].ready = true
	if p := n.at(g, 2*time.Second); p.Stop == nil || p.Stop.Kind != kindAdmission || !g.reliefs[policy.NodeFSAvailable].ready {
		t.Fatalf("%+v, the disk's reclaim is spent: %v", p.Stop, !g.reliefs[policy.NodeFSAvailable].ready)
	}
	n.end(n.stops[0])
	n.set(policy.MemoryAvailable, 8*testGiB)
	n.at(g, 30*time.Second)
	late.ID, late.Created = "late2", time.Hour+40*time.Second
	n.pods = append(n.pods, late)
	n.set(policy.NodeFSAvailable, testGiB/2)
	if p := n.at(g, time.Minute); p.Stop == nil || p.Stop.Pod != "d/big" {
		t.Errorf("a disk that another one fills: stopped %+v", p.Stop)
	}
}

// The same input gives the same record.
func TestPassIsDeterministic(t *testing.T) {
	var first string
	for range 20 {
		g, n := newPassGuard(t, softAndHard)
		n.set(policy.MemoryAvailable, testGiB/2)
		p := n.at(g, 0)
		if got := fmt.Sprintf("%+v %+v", p.Stop.Reason, p.Ranked); first == "" {
			first = got
		} else if got != first {
			t.Fatalf("got %s, then %s", first, got)
		}
	}
}
