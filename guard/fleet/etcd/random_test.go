package etcd

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// troubled is a fleet of a few nodes with random troubles. All of them want stops of the same workloads.
type troubled struct {
	*permits
	rnd     *rand.Rand
	nodes   []*asking
	busy    *asking // the node whose call is interrupted; nil = none
	nested  bool    // something happens meanwhile
	ids     int
	granted int
}

// asking is a node that asks for permits as an agent does: a request keeps its ID until its permit is given.
type asking struct {
	*Client
	id, workload string
}

// step lets something happen.
func (f *troubled) step() {
	n := f.nodes[f.rnd.IntN(len(f.nodes))]
	if f.busy == nil {
		f.busy = n
		defer func() { f.busy = nil }()
	} else if n == f.busy { // an agent's calls do not overlap
		return
	}
	switch i := f.rnd.IntN(100); {
	case i < 25:
		f.m.now += time.Duration(f.rnd.IntN(20)) * time.Second
	case i < 26:
		f.m.now += time.Duration(f.rnd.IntN(12)) * time.Minute
	case i < 46:
		_ = n.Report(f.Context(), State{Digest: "d1", Pools: []string{"memory"}})
	case i < 47:
		_ = n.Report(f.Context(), State{Digest: "d1"})
	case i < 86:
		f.ask(n)
	case i < 93 && len(f.m.onTheWay) > 0:
		at := f.rnd.IntN(len(f.m.onTheWay))
		late := f.m.onTheWay[at]
		f.m.onTheWay = append(f.m.onTheWay[:at], f.m.onTheWay[at+1:]...)
		f.calmly(func() { _ = late() })
	case i < 95: // the leader changes
		f.m.restore(f.m.snapshot())
	case i < 97:
		f.m.wipe()
	default: // the agent restarts, with its request
		n.Client = f.client(n.opt.Node)
	}
}

// client returns the client of a node, in one of two zones.
func (f *troubled) client(node string) *Client {
	c := f.m.client(f.T, node)
	c.opt.Zone += node[len(node)-1:]
	r := &c.opt.Rates
	r.MinZone = 1000 // so that the zone is normal
	r.Secondary, r.WorkloadInterval = r.Rate/2, time.Minute
	return c
}

// ask asks for a permit. Of those that are granted, some are given back.
func (f *troubled) ask(n *asking) {
	if n.id == "" || f.rnd.IntN(10) == 0 {
		f.ids++
		n.id, n.workload = fmt.Sprint("id", f.ids), fmt.Sprint("shop/", f.rnd.IntN(5))
	}
	p, err := n.Acquire(f.Context(), n.opt.Rates, n.workload, n.id)
	if isUnknown(err) && f.rnd.IntN(3) == 0 { // the agent is killed meanwhile
		n.Client = f.client(n.opt.Node)
		f.ask(n)
		return
	}
	if err != nil || f.m.now >= p.Deadline {
		return
	}
	n.id = ""
	f.granted++
	if f.rnd.IntN(5) == 0 {
		_ = n.Release(f.Context(), p)
		return
	}
	f.all = append(f.all, given{p, n.opt.Zone, n.opt.Node, n.workload, f.m.now})
}

// trouble is an interrupt: a call or its answer may be lost, it may take effect later, and others may come meanwhile.
func (f *troubled) trouble(done bool) error {
	switch i := f.rnd.IntN(100); {
	case i < 5:
		return errBroken
	case i < 12 && !done:
		return errLater
	case i < 22 && !f.nested:
		f.nested = true
		f.step()
		f.nested = false
	}
	return nil
}

// calmly does something without more troubles.
func (f *troubled) calmly(do func()) {
	before := f.m.interrupt
	f.m.interrupt = nil
	do()
	f.m.interrupt = before
}

// Whatever troubles come together, no slot has two permits.
func TestTroubles(t *testing.T) {
	const runs, steps = 8, 1000
	granted := 0
	for seed := range uint64(runs) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			f := &troubled{permits: &permits{T: t, m: newMemory()}, rnd: rand.New(rand.NewPCG(seed, 1))}
			for i := range 4 {
				f.nodes = append(f.nodes, &asking{Client: f.client(fmt.Sprint("n", i, "-", i%2))})
			}
			f.m.interrupt = f.trouble
			for _, n := range f.nodes {
				_ = n.Report(t.Context(), State{Digest: "d1", Pools: []string{"memory"}})
			}
			f.m.now += SettlingTTL
			for range steps {
				f.step()
			}
			f.check(f.nodes[0].opt.Rates.WorkloadInterval)
			granted += f.granted
		})
	}
	if t.Logf("%d permits", granted); granted < runs*10 {
		t.Errorf("only %d permits", granted)
	}
}
