package simulate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/trace"
	"github.com/criguard/criguard/policy"
)

// randomTraces returns how many random traces a property is tested on: CRIGUARD_TRACES, if it is set.
func randomTraces() uint64 {
	asked, isAsked := askedFor("CRIGUARD_TRACES")
	switch {
	case isAsked:
		return asked
	case testing.Short() || raceEnabled:
		return 500
	default:
		return 10_000
	}
}

// askedFor returns the number of runs that a variable of the environment asks for.
func askedFor(variable string) (runs uint64, ok bool) {
	text := os.Getenv(variable)
	if text == "" {
		return 0, false
	}
	runs, err := strconv.ParseUint(text, 10, 32)
	if err != nil || runs == 0 {
		panic(fmt.Sprintf("%s=%s: not a number of runs", variable, text))
	}
	return runs, true
}

// randomConfigs are the configurations of random traces.
func randomConfigs(t *testing.T) (cfgs []config.Config) {
	const hard = "[eviction.hard]\n\"memory.available\" = \"1Gi\"\n\"pid.available\" = \"1000\"\n\"nodefs.available\" = \"1Gi\"\n"
	const soft = hard + "[eviction.soft]\n\"memory.available\" = \"2Gi\"\n[eviction.soft_grace_period]\n\"memory.available\" = \"2s\"\n"
	for _, conf := range []string{
		hard, soft, soft + "[budget]\nhard = {burst = 1, every = \"30s\"}\n",
		soft + "[budget]\nbreaker = 0\nper_hour = 0\nhard = {burst = 100, every = \"1s\"}\nsoft = {burst = 100, every = \"1s\"}\n",
	} {
		cfgs = append(cfgs, parsed(t, conf))
	}
	return cfgs
}

func parsed(t *testing.T, conf string) config.Config {
	t.Helper()
	cfg, err := config.Parse("random", strings.NewReader(conf))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// randomNode is a random node that answers to stops: it makes one line of a trace after another. Its pods
// leak, end and come back, and memory is also used outside them.
type randomNode struct {
	rng     *rand.Rand
	at      time.Duration
	pods    []*randomPod
	outside int64 // bytes
	drift   int64 // bytes per second by which it grows
	tasks   int64 // outside the pods
	others  map[policy.Signal]int64
	step    []time.Duration
	serial  int
}

type randomPod struct {
	name, uid         string
	workload          int
	qos               string
	priority, request int64
	protected, blind  bool
	used, leak        int64 // bytes, and bytes per second
	pids, forks       int64
	disk, writes      int64
	gone              bool
	created           time.Duration
	named             time.Duration // since when the trace has named it
}

const randomCapacity = 8 << 30

func newRandomNode(rng *rand.Rand) *randomNode {
	n := &randomNode{rng: rng, outside: rng.Int64N(2 << 30), others: map[policy.Signal]int64{}}
	n.step = [][]time.Duration{
		{10 * time.Millisecond, 300 * time.Millisecond, time.Second}, {time.Second}, {time.Second, 3 * time.Second, 15 * time.Second}, {10 * time.Second, time.Minute},
	}[rng.IntN(4)]
	if rng.IntN(3) == 0 {
		n.drift = rng.Int64N(300 << 20)
	}
	for range 2 + rng.IntN(11) {
		n.add(rng.IntN(4), (randomCapacity-n.outside)/8)
	}
	return n
}

// add adds a pod of a workload that uses at most so much memory.
func (n *randomNode) add(workload int, most int64) {
	n.serial++
	p := &randomPod{
		name: fmt.Sprintf("d/w%d-5d4f8c7b9-p%04d", workload, n.serial), uid: fmt.Sprint("u", n.serial), workload: workload, qos: "Burstable",
		priority: int64(n.rng.IntN(3) - 1), used: n.rng.Int64N(most), pids: n.rng.Int64N(50), disk: n.rng.Int64N(1 << 30), created: n.at, named: n.at,
	}
	switch n.rng.IntN(10) {
	case 0, 1, 2:
		p.qos = "BestEffort"
	case 3:
		p.qos, p.request = "Guaranteed", p.used+n.rng.Int64N(1<<30)
	default:
		p.request = n.rng.Int64N(2*p.used + 1)
	}
	switch n.rng.IntN(12) {
	case 0, 1:
		p.leak = n.rng.Int64N(20 << 20)
	case 2:
		p.leak = n.rng.Int64N(1 << 30)
	case 3:
		p.forks = n.rng.Int64N(2000)
	case 4:
		p.writes = n.rng.Int64N(1 << 30)
	}
	p.protected, p.blind = n.rng.IntN(15) == 0, n.rng.IntN(60) == 0
	n.pods = append(n.pods, p)
}

func (n *randomNode) find(uid string) *randomPod {
	i := slices.IndexFunc(n.pods, func(p *randomPod) bool { return p.uid == uid })
	return n.pods[i]
}

// next returns the next line.
func (n *randomNode) next() trace.Line {
	d := n.step[n.rng.IntN(len(n.step))]
	n.at += d
	grown := func(rate int64) int64 { return int64(float64(rate) * d.Seconds()) }
	n.outside = max(n.outside+grown(n.drift), 0)
	line := trace.Line{At: api.Duration(n.at), Signals: map[policy.Signal]trace.Observation{}, Pods: []trace.Pod{}}
	if n.rng.IntN(20) == 0 {
		n.add(n.rng.IntN(4), 200<<20)
	}
	used, tasks, disk := n.outside, n.tasks, int64(80<<30)
	for _, p := range n.pods {
		if p.gone && n.rng.IntN(3) == 0 { // its controller creates it again
			p.gone, p.used, p.pids, p.disk, p.named = false, n.rng.Int64N(300<<20), 10, 1<<20, n.at
		}
		if p.gone {
			continue
		}
		p.used, p.pids, p.disk = min(p.used+grown(p.leak), 6<<30), min(p.pids+grown(p.forks), 32000), min(p.disk+grown(p.writes), 15<<30)
		used, tasks, disk = used+p.used, tasks+p.pids, disk+p.disk
		line.Pods = append(line.Pods, p.pod())
	}
	signal := func(s policy.Signal, available, capacity int64) {
		line.Signals[s] = trace.Observation{Available: trace.QuantityOf(available), Capacity: trace.QuantityOf(capacity)}
	}
	signal(policy.MemoryAvailable, randomCapacity-used, randomCapacity)
	signal(policy.PIDAvailable, 32768-tasks, 32768)
	signal(policy.NodeFSAvailable, 100<<30-disk, 100<<30)
	return line
}

func (p *randomPod) pod() trace.Pod {
	yes, created := true, api.Duration(p.created)
	t := trace.Pod{
		Created: &created, Name: p.name, UID: p.uid, QoS: &p.qos, Priority: ptr(p.priority), MemoryRequest: trace.QuantityOf(p.request), Labels: map[string]string{"pod-template-hash": "5d4f8c7b9"},
		MemoryUsage: trace.QuantityOf(p.used), PIDs: ptr(p.pids), DiskUsage: &trace.Disk{Rootfs: trace.Quantity(p.disk)},
	}
	if p.protected {
		t.Protected = &yes
	}
	if p.blind {
		t.NoStats = &yes
	}
	return t
}

func ptr(n int64) *int64 { return &n }
