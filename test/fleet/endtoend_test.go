package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/client/agenttest"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/test/etcdtest"
	"github.com/criguard/criguard/test/lab"
	"github.com/criguard/criguard/test/need"
)

// The fleet: nodes in two zones, of which the last of each zone is on a real containerd.
const (
	endNodes  = 22
	endReal   = 2
	endZones  = 2
	endFew    = 8 // nodes that keep the soft threshold at the end
	fakeBytes = 64 * mib
	realBytes = 256 * mib
)

// endFleet is a whole fleet.
type endFleet struct {
	*testing.B
	c      *etcdtest.Cluster
	nodes  []*endNode
	phases []*endPhase
	stops  []endStop // with the fleet
	away   span      // when etcd was away
}

// endPhase is a column of the table.
type endPhase struct {
	name       string
	begin, end time.Duration              // since boot
	soft       []endStop                  // stops
	hard       map[string][]time.Duration // how long hard stops took, by node
}

// BenchmarkEndToEnd runs a whole fleet: three members of etcd with TLS and roles, and 22 nodes with a guard and an agent
// each, two of them with real pods. A soft threshold comes into force on all nodes at once: without the fleet, with it,
// while etcd is away, and after its return. Hard stops come in between. It takes half an hour, so run it with
// -benchtime=1x. docs/fleet.md has its figures.
func BenchmarkEndToEnd(b *testing.B) {
	need.Root(b)
	f := newEndFleet(b)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	defer func() { cancel(); group.Wait() }()
	for _, n := range f.nodes {
		group.Go(func() { n.keep(ctx) })
	}

	f.startGuards(false)
	f.phase("no fleet", func() {
		f.push(true, f.nodes...)
		f.hardStops(2 * time.Minute)
	})
	without := f.collect()
	f.assign(without)
	f.end()

	f.startGuards(true)
	recorder, stopRecorder := startRecorder(b, f.c)
	f.join()
	watching, stopWatching := context.WithCancel(ctx)
	for _, n := range f.nodes {
		group.Go(func() { n.watch(watching) })
	}
	f.phase("fleet", func() {
		f.push(true, f.nodes...)
		f.hardStops(2 * time.Minute)
	})
	f.phase("etcd away", func() {
		f.away.from = cgroup.BootTime()
		for _, m := range f.c.Members {
			m.Kill()
		}
		f.hardStops(2 * time.Minute)
		f.hardStops(6 * time.Minute)
		f.hardStops(9*time.Minute + 30*time.Second)
	})
	f.phase("etcd back", func() {
		for _, m := range f.c.Members {
			m.Start(b)
		}
		f.c.Ready(b)
		f.away.to = cgroup.BootTime()
		f.hardStops(4 * time.Minute)
	})
	f.phase(fmt.Sprintf("on %d nodes", endFew), func() {
		f.push(false, f.nodes[endFew:]...)
		f.hardStops(3 * time.Minute)
	})
	stopWatching()
	f.wantConnected()
	f.stops = f.collect()
	f.assign(f.stops)
	f.end()
	stopRecorder()
	f.check(recorder)
}

func newEndFleet(b *testing.B) *endFleet {
	b.Helper()
	f := &endFleet{B: b, c: etcdtest.Start(b, etcdtest.Options{Program: built[lab.Etcd36], Members: 3})}
	users := map[string]etcdtest.Grants{}
	for i := range endZones {
		zone := zoneOf(i)
		users[zone] = etcdtest.Grants{Read: []string{prefix}, Write: []string{
			prefix + "settling", prefix + "w/", prefix + "s/" + zone, prefix + "m/" + zone + "/", prefix + "u/" + zone + "/",
		}}
	}
	f.c.EnableRoles(b, users)
	criguard := filepath.Join(b.TempDir(), "criguard")
	if err := lab.BuildCriguard(b.Context(), criguard); err != nil {
		b.Fatal(err)
	}
	for i := range endNodes {
		n := &endNode{TB: b, name: fmt.Sprintf("n%02d", i), zone: zoneOf(i), criguard: criguard, endKubelet: &endKubelet{TB: b, begun: 5 * i}}
		if i >= endNodes-endReal {
			n.onContainerd()
		} else {
			n.onFake()
		}
		f.nodes = append(f.nodes, n)
	}
	b.Cleanup(func() {
		for _, n := range f.nodes {
			n.end()
		}
	})
	return f
}

func zoneOf(i int) string { return fmt.Sprint("ring-", i%endZones+1) }

// onFake puts the node on a fake runtime and a filesystem of its own.
func (n *endNode) onFake() {
	n.Helper()
	n.root = n.TempDir()
	if err := unix.Mount("criguard-test", n.root, "tmpfs", 0, fmt.Sprintf("mode=0755,size=%d", fakeBytes)); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = unix.Unmount(n.root, unix.MNT_DETACH) })
	s := critest.New(n, critest.Containerd2)
	s.SetImageFilesystem(n.root)
	sys := nodetest.Files(n, map[string]string{"fs/cgroup/cgroup.controllers": "memory pids\n", "fs/cgroup/kubepods/cgroup.procs": ""})
	n.podRuntime = fakeRuntime{s, n.root, sys}
	n.layout = fmt.Sprintf("[runtime]\nendpoint = %q\n[node]\nroot_dir = %q\npod_log_dir = %q\nproc = %q\nsys = %q\n",
		s.Endpoint(), n.root, n.TempDir(), nodetest.Proc(n, 4<<30), sys)
}

// onContainerd puts the node on a containerd of its own.
func (n *endNode) onContainerd() {
	n.Helper()
	l, err := lab.Start(context.Background(), lab.Options{NodeFSBytes: realBytes, Say: n.Logf})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		if err := l.Close(); err != nil {
			n.Error(err)
		}
	})
	n.podRuntime, n.root, n.layout = realRuntime{l}, l.KubeletRoot(), l.Config()
}

// startGuards starts all guards, with their agents if they ask the fleet.
func (f *endFleet) startGuards(fleet bool) {
	f.Helper()
	for _, n := range f.nodes {
		n.startGuard(fleet)
		if fleet {
			n.startAgent(f.c.Endpoints(), f.c.Issue(f, n.zone))
		}
	}
}

// join waits until all nodes are members, and ends the time in which an etcd that was empty gives no permits.
func (f *endFleet) join() {
	f.Helper()
	etcdtest.Wait(f, func() error {
		resp, err := pb.NewKVClient(f.c.Conn()).Range(f.Context(), &pb.RangeRequest{Key: []byte(prefix + "m/"), RangeEnd: []byte(prefix + "m0"), CountOnly: true})
		if err == nil && resp.Count != endNodes {
			err = fmt.Errorf("%d members", resp.Count)
		}
		return err
	})
	revokeSettling(f.B, f.c)
}

// push puts the soft threshold in force on nodes, or withdraws it, on all of them at once.
func (f *endFleet) push(soft bool, nodes ...*endNode) {
	f.Helper()
	errs := make([]error, len(nodes))
	var group sync.WaitGroup
	for i, n := range nodes {
		group.Go(func() { errs[i] = n.push(soft) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		f.Fatal(err)
	}
}

// phase runs a phase.
func (f *endFleet) phase(name string, do func()) {
	f.Helper()
	p := &endPhase{name: name, begin: cgroup.BootTime(), hard: map[string][]time.Duration{}}
	f.phases = append(f.phases, p)
	do()
	p.end = cgroup.BootTime()
	f.Logf("%s: %s, %d soft stops so far, hard stops after %v", name, (p.end - p.begin).Round(time.Second), len(f.collect()), p.hard)
}

// hardStops lets a time pass. In the middle of it, a pod on some nodes meets the hard threshold.
func (f *endFleet) hardStops(d time.Duration) {
	f.Helper()
	end := time.After(d)
	pause := func(c <-chan time.Time) {
		select {
		case <-c:
		case <-f.Context().Done():
		}
	}
	pause(time.After(d / 2))
	p := f.phases[len(f.phases)-1]
	for _, n := range []*endNode{f.nodes[0], f.nodes[endNodes/2-1], f.nodes[endNodes-1]} {
		took, err := n.hardStop()
		if err != nil {
			f.Error(err)
			continue
		}
		p.hard[n.name] = append(p.hard[n.name], took.Round(time.Millisecond))
	}
	pause(end)
}

// end ends all guards and agents.
func (f *endFleet) end() {
	f.Helper()
	for _, n := range f.nodes {
		n.end()
	}
}

// wantConnected fails the benchmark if a node is alone.
func (f *endFleet) wantConnected() {
	f.Helper()
	for _, n := range f.nodes {
		s, err := agenttest.Status(f.Context(), n.socket())
		if err != nil || s.AloneFor > 0 {
			f.Errorf("%s is alone at the end for %s: %s, %v", n.name, time.Duration(s.AloneFor), s.Error, err)
		}
	}
}

// collect returns the soft stops of all guards. No hard stop waits for the fleet.
func (f *endFleet) collect() (stops []endStop) {
	f.Helper()
	for _, n := range f.nodes {
		for _, p := range n.passes() {
			if p.Held == api.HeldFleet && strings.HasSuffix(p.HeldBy, ":hard") {
				f.Errorf("%s at %s: the fleet holds a hard stop: %s", n.name, time.Duration(p.At), p.HeldDetail)
			}
			if p.Stop != nil && p.Stop.Kind == "soft" {
				stops = append(stops, endStop{n.name, n.zone, workloadOf(p.Stop.Pod), time.Duration(p.At)})
			}
		}
	}
	return stops
}

// assign assigns stops to phases.
func (f *endFleet) assign(stops []endStop) {
	f.Helper()
	for _, s := range stops {
		i := slices.IndexFunc(f.phases, func(p *endPhase) bool { return s.at >= p.begin && s.at < p.end })
		if i < 0 {
			f.Errorf("%s stopped %s at %s: before the threshold was in force", s.node, s.workload, s.at)
			continue
		}
		f.phases[i].soft = append(f.phases[i].soft, s)
	}
}

// check prints the table, and compares the run with the rules.
func (f *endFleet) check(r *recorder) {
	f.Helper()
	f.Log(table(f.phases))
	r.mu.Lock()
	permits := permitsOf(r.events)
	err := r.err
	r.mu.Unlock()
	if err != nil {
		f.Error(err)
	}
	alone := map[string][]span{}
	for _, n := range f.nodes {
		n.mu.Lock()
		alone[n.name] = n.alone
		n.mu.Unlock()
	}
	rates := fleet.DefaultRates()
	// A tenth of a stop per minute is at most two in the 13 minutes of the trickle.
	rules := endRules{slot: 10 * time.Second, interval: rates.WorkloadInterval, trickle: 2, away: f.away}
	wrong, permitted := rules.check(f.stops, permits, alone)
	for _, text := range wrong {
		f.Error(text)
	}
	if len(wrong) > 0 {
		for _, s := range f.stops {
			f.Logf("stop %+v", s)
		}
		for _, p := range permits {
			f.Logf("permit %+v", *p)
		}
		f.Logf("alone %v", alone)
	}
	f.Logf("%d soft stops in a fleet, %d of them with a permit; %d permits in etcd", len(f.stops), permitted, len(permits))
	if permitted == 0 || permitted == len(f.stops) {
		f.Error("want stops with a permit, and stops of nodes that are alone")
	}
	if err := compare(f.phases[0], f.phases[1]); err != nil {
		f.Error(err)
	}
	// A hard stop takes as long as without a fleet, but for the load of the machine. With a real containerd, the reclaim
	// before it takes up to ten seconds.
	for _, p := range f.phases {
		for i, n := range f.nodes {
			slack := 3 * time.Second
			if i >= endNodes-endReal {
				slack = 12 * time.Second
			}
			limit := slices.Max(append(f.phases[0].hard[n.name], 0)) + slack
			if took := slices.Max(append(p.hard[n.name], 0)); took > limit {
				f.Errorf("%s: a hard stop on %s took %s, want %s at most", p.name, n.name, took, limit)
			}
		}
	}
}

// table returns the soft stops by minute.
func table(phases []*endPhase) string {
	var b strings.Builder
	b.WriteString("\n| minute |")
	rows := 0
	for _, p := range phases {
		fmt.Fprintf(&b, " %s |", p.name)
		rows = max(rows, p.minutes())
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(phases)+1) + "\n")
	for minute := range rows {
		fmt.Fprintf(&b, "| %d |", minute+1)
		for _, p := range phases {
			if minute >= p.minutes() {
				b.WriteString(" |")
				continue
			}
			count := 0
			for _, s := range p.soft {
				if int((s.at-p.begin)/time.Minute) == minute {
					count++
				}
			}
			fmt.Fprintf(&b, " %d |", count)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// minutes returns the number of minutes that a phase has begun, but for a few seconds at its end.
func (p *endPhase) minutes() int { return int((p.end - p.begin + 30*time.Second) / time.Minute) }
