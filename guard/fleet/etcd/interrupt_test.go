package etcd

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"
)

// given is a permit that a node may use.
type given struct {
	Permit
	zone, node, workload string
	at                   time.Duration
}

// permits are all permits of a run.
type permits struct {
	*testing.T
	m   *memory
	all []given
}

// round lets a node report that it wants a stop, and request a permit with an ID.
func (p *permits) round(c *Client, workload, id string) error {
	if err := c.Report(p.Context(), State{Digest: "d1", Version: "v1", Pools: []string{"memory"}}); err != nil {
		return err
	}
	got, err := c.Acquire(p.Context(), c.opt.Rates, workload, id)
	if err == nil && p.m.now < got.Deadline {
		p.all = append(p.all, given{got, c.opt.Zone, c.opt.Node, workload, p.m.now})
	}
	return err
}

// check fails the test if two permits share a slot of the zone or of their workload.
func (p *permits) check(interval time.Duration) {
	p.Helper()
	for i, a := range p.all {
		for _, b := range p.all[i+1:] {
			if b.zone == a.zone && b.at < a.Since+a.Slot {
				p.Errorf("%s got a permit at %s, %s one at %s: the zone's slot lasts %s", a.node, a.at, b.node, b.at, a.Slot)
			}
			if b.workload == a.workload && b.at < a.Since+interval {
				p.Errorf("%s got a permit for %s at %s, %s one at %s", a.node, a.workload, a.at, b.node, b.at)
			}
		}
	}
}

// A node may stand still at any of its calls to etcd, before the call takes effect or before its answer, for any time, and may
// lose the answer. Whatever happens meanwhile, no slot has two permits: another node may take it, and etcd may lose its data
// before or after that. This does not depend on whether nodes notice that its history has gone back.
func TestStandstill(t *testing.T) {
	m := newMemory()
	m.headless = true
	n1, n2, n3 := m.client(t, "n1"), m.client(t, "n2"), m.client(t, "n3")
	begin := func(t *testing.T) *permits {
		p := &permits{T: t, m: m}
		m.now += 24 * time.Hour
		m.wipe()
		for _, c := range []*Client{n1, n2, n3} {
			must(t, c.Report(t.Context(), State{Digest: "d1", Version: "v1"})) // the fleet settles
		}
		m.now += SettlingTTL + time.Minute
		return p
	}
	runs, granted := 0, 0
	all := []struct {
		name      string
		meanwhile func(p *permits)
	}{
		{"another node", func(p *permits) { _ = p.round(n2, "shop/web", rand.Text()) }},
		{"another node and workload", func(p *permits) { _ = p.round(n2, "shop/api", rand.Text()) }},
		{"the data is lost", func(*permits) { m.wipe() }},
		{"lost, and another node is back", func(p *permits) { m.wipe(); _ = p.round(n2, "shop/web", rand.Text()) }},
		{"taken, then lost", func(p *permits) { _ = p.round(n2, "shop/web", rand.Text()); m.wipe() }},
		{"taken, then lost, and another node is back", func(p *permits) {
			_ = p.round(n2, "shop/web", rand.Text())
			m.wipe()
			_ = p.round(n3, "shop/api", rand.Text())
		}},
	}
	for i, tt := range all {
		for _, idle := range []time.Duration{0, 11 * time.Second, 12 * time.Minute} {
			for _, lost := range []bool{false, true} {
				if i > 0 && i < len(all)-1 && (lost || idle != 11*time.Second) {
					continue // the others cover it
				}
				for at := 0; ; at++ {
					p, id, seen := begin(t), rand.Text(), 0
					m.interrupt = func(bool) error {
						if seen++; seen-1 != at {
							return nil
						}
						again := m.interrupt
						m.interrupt = nil
						m.now += idle / 2
						tt.meanwhile(p)
						m.now += idle - idle/2
						m.interrupt = again
						if lost {
							return errBroken
						}
						return nil
					}
					err := p.round(n1, "shop/web", id)
					m.interrupt = nil
					if err != nil {
						_ = p.round(n1, "shop/web", id)
					}
					_ = p.round(n3, "shop/web", rand.Text())
					_ = p.round(n2, "shop/web", rand.Text())
					runs, granted = runs+1, granted+len(p.all)
					if p.check(n1.opt.Rates.WorkloadInterval); t.Failed() {
						t.Fatalf("%s, for %s, answer lost: %t, at half call %d: %v", tt.name, idle, lost, at, err)
					}
					if seen <= at {
						break
					}
				}
			}
		}
	}
	if t.Logf("%d runs, %d permits", runs, granted); runs < 300 || granted < runs/2 {
		t.Errorf("%d runs, %d permits", runs, granted)
	}
}

// A permit whose answer was lost is not given any more once an operator has paused the fleet. Its slots are free.
func TestPausedBeforeTheAnswer(t *testing.T) {
	for _, paused := range []bool{false, true} {
		m := newMemory()
		n := m.client(t, "n1")
		must(t, n.Report(t.Context(), State{Pools: []string{"memory"}}))
		m.now += SettlingTTL
		must(t, n.Report(t.Context(), State{Pools: []string{"memory"}}))
		_, err := n.Acquire(t.Context(), n.opt.Rates, "shop/web", "id")
		must(t, err) // the agent is killed before it has the answer
		if paused {
			must(t, m.client(t, "").Pause(t.Context(), time.Hour))
		}
		p, err := n.Acquire(t.Context(), n.opt.Rates, "shop/web", "id")
		denied, _ := errors.AsType[*DeniedError](err)
		if slot := m.keys[n.keys.zoneSlot("z")]; (slot == nil) != paused {
			t.Errorf("paused: %t, the slot is %s", paused, slot)
		}
		if !paused && (err != nil || p.ID != "id") || paused && (denied == nil || denied.Code != Paused) {
			t.Errorf("paused: %t, got %+v, %v", paused, p, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
