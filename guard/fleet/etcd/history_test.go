package etcd

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"
)

// wantDenied fails the test unless err is a denial with a code.
func wantDenied(t *testing.T, err error, code string) {
	t.Helper()
	if d, _ := errors.AsType[*DeniedError](err); d == nil || d.Code != code {
		t.Errorf("got %v, want a denial: %s", err, code)
	}
}

// An etcd that has gone back has lost slots. The first node that notices lets the fleet settle, and the next ones do not let it
// settle again.
func TestHistoryGoesBack(t *testing.T) {
	wish := State{Pools: []string{"memory"}}
	for _, tt := range []struct {
		name    string
		away    time.Duration // between the node's last contact and the restore
		restore func(m *memory, before disk)
		denied  string // after the report; "" = the fleet does not settle
	}{
		{"nothing", 0, func(*memory, disk) {}, ""},
		{"restored from a snapshot", 0, func(m *memory, before disk) { m.restore(before) }, Settling},
		{"restored an hour later", time.Hour, func(m *memory, before disk) { m.restore(before) }, Settling},
		{"a new cluster with the data and more", 0, func(m *memory, _ disk) { m.cluster++; m.revision += 1000 }, SlotTaken},
		{"the node was away for long", 3 * time.Hour, func(m *memory, before disk) { m.restore(before) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemory()
			n1, n2 := m.client(t, "n1"), m.client(t, "n2")
			for _, n := range []*Client{n1, n2} {
				must(t, n.Report(t.Context(), wish))
			}
			m.now += SettlingTTL
			must(t, n1.Report(t.Context(), wish))
			before := m.snapshot()
			_, err := n1.Acquire(t.Context(), n1.opt.Rates, "shop/web", rand.Text())
			must(t, err)
			must(t, n2.Report(t.Context(), wish))
			m.now += tt.away
			tt.restore(m, before)
			if _, err := n2.Acquire(t.Context(), n2.opt.Rates, "shop/web", rand.Text()); tt.denied != "" {
				wantDenied(t, err, NotReported)
			}
			must(t, n2.Report(t.Context(), wish))
			if settles := m.keys[n2.keys.settling()] != nil; settles != (tt.denied != "") {
				t.Fatalf("settles: %t", settles)
			}
			if tt.denied == "" {
				return
			}
			first := m.keys[n2.keys.settling()].Lease
			for _, n := range []*Client{n2, n1} {
				_, _ = n.Acquire(t.Context(), n.opt.Rates, "shop/api", rand.Text())
				must(t, n.Report(t.Context(), wish))
				_, err = n.Acquire(t.Context(), n.opt.Rates, "shop/api", rand.Text())
				wantDenied(t, err, tt.denied)
			}
			if again := m.keys[n2.keys.settling()].Lease; again != first {
				t.Error("settles again")
			}
			m.now += n2.opt.Rates.LongestSlot() + 2*time.Second
			_, err = n2.Acquire(t.Context(), n2.opt.Rates, "shop/web", rand.Text())
			must(t, err)
			m.now += SettlingTTL
			must(t, n1.Report(t.Context(), wish))
			if m.keys[n2.keys.settling()] != nil {
				t.Error("settles for a second time")
			}
		})
	}
}

// The fleet settles for as long as the longest slot by the rates that the operators have set, also if those are lost with the slots.
func TestSettlesForTheLongestSlotInForce(t *testing.T) {
	m := newMemory()
	n1, n2 := m.client(t, "n1"), m.client(t, "n2")
	wish, interval := State{Pools: []string{"memory"}}, Duration(6*time.Hour)
	must(t, n1.SetRates(t.Context(), &Overrides{WorkloadInterval: &interval}))
	for _, n := range []*Client{n1, n2} {
		must(t, n.Report(t.Context(), wish))
	}
	m.now += SettlingTTL
	must(t, n2.Report(t.Context(), wish))
	before := m.snapshot()
	must(t, n1.Report(t.Context(), wish))
	_, err := n1.Acquire(t.Context(), n1.opt.Rates, "shop/web", rand.Text())
	must(t, err)
	_, err = n2.Survey(t.Context(), n2.opt.Rates)
	must(t, err)
	must(t, n2.Report(t.Context(), wish))
	m.restore(before)
	for range 5 {
		must(t, n2.Report(t.Context(), wish))
		_, err = n2.Acquire(t.Context(), n2.opt.Rates, "shop/web", rand.Text())
		wantDenied(t, err, Settling)
		m.now += time.Hour
	}
	m.now += time.Hour + time.Minute
	must(t, n2.Report(t.Context(), wish))
	_, err = n2.Acquire(t.Context(), n2.opt.Rates, "shop/web", rand.Text())
	must(t, err)
}

// A node takes no slot if etcd goes back between its look at the fleet and the transaction, and leaves none behind.
func TestHistoryGoesBackMeanwhile(t *testing.T) {
	for at := 0; ; at++ {
		m := newMemory()
		n1, n2 := m.client(t, "n1"), m.client(t, "n2")
		wish := State{Pools: []string{"memory"}}
		must(t, n1.Report(t.Context(), wish))
		m.now += SettlingTTL
		must(t, n1.Report(t.Context(), wish))
		before := m.snapshot()
		for _, digest := range []string{"d1", "d2", "d3", "d4"} { // writes that are lost
			must(t, n2.Report(t.Context(), State{Digest: digest}))
		}
		must(t, n1.Report(t.Context(), wish))
		seen := 0
		m.interrupt = func(done bool) error {
			if seen++; seen-1 == at && !done {
				m.restore(before)
			}
			return nil
		}
		p, err := n1.Acquire(t.Context(), n1.opt.Rates, "shop/web", rand.Text())
		m.interrupt = nil
		switch {
		case seen <= at: // all calls had their turn
			if at < 6 {
				t.Errorf("interrupted %d times", at)
			}
			return
		case at%2 == 1: // nothing happened
			must(t, err)
		case err == nil:
			t.Fatalf("before call %d: got %+v", at/2, p)
		default:
			if d, _ := errors.AsType[*DeniedError](err); d == nil || d.Code != NotReported && d.Code != TooLate { // its leases are lost, too
				t.Errorf("before call %d: %v", at/2, err)
			}
			if m.keys[n1.keys.zoneSlot("z")] != nil {
				t.Errorf("before call %d: a slot is taken", at/2)
			}
		}
	}
}
