package etcd

import (
	"crypto/rand"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// wantNoOrphans fails the test if etcd has a lease that no key has, but for those with which a fleet may settle.
func (m *memory) wantNoOrphans(t *testing.T) {
	t.Helper()
	for id, l := range m.leases {
		needed := false
		for _, kv := range m.keys {
			needed = needed || kv.Lease == id
		}
		if !needed && m.now < l.ends && l.ttl != SettlingTTL {
			t.Errorf("a lease of %s is left behind", l.ttl)
		}
	}
}

// etcd may not answer a call, whether it performs it or not, and no call for a while after it. Once it answers again, the next
// report leaves no lease behind, and a permit that is requested again does not share its slots.
func TestNoLeaseIsLeftBehind(t *testing.T) {
	wish := State{Digest: "d1", Pools: []string{"memory"}}
	for _, settled := range []bool{false, true} {
		for _, outage := range []int{1, 3, 1000} { // half calls
			for _, wants := range []bool{false, true} { // after it
				for at := 0; ; at++ {
					p := &permits{T: t, m: newMemory()}
					n1, n2 := p.m.client(t, "n1"), p.m.client(t, "n2")
					if settled {
						must(t, n2.Report(t.Context(), wish))
						p.m.now += SettlingTTL
						must(t, n2.Report(t.Context(), wish))
					}
					seen, id := 0, rand.Text()
					p.m.interrupt = func(bool) error {
						if seen++; at < seen && seen <= at+outage {
							return errBroken
						}
						return nil
					}
					err := p.round(n1, "shop/web", id)
					p.m.interrupt = nil
					switch {
					case !wants:
						must(t, n1.Report(t.Context(), State{Digest: "d1"}))
					case err != nil:
						_ = p.round(n1, "shop/web", id)
					}
					p.m.wantNoOrphans(t)
					_ = p.round(n2, "shop/web", rand.Text())
					if p.check(n1.opt.Rates.WorkloadInterval); t.Failed() {
						t.Fatalf("settled: %t, %d half calls from %d on fail, still wants: %t: %v", settled, outage, at, wants, err)
					}
					if seen <= at {
						break
					}
				}
			}
		}
	}
}

// A revocation without an answer may still be on its way when the permit is requested again, by the same agent or by the one after
// a restart. It must not free the slots of that permit later.
func TestNoPermitOfLeasesThatMayBeRevoked(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		p := &permits{T: t, m: newMemory()}
		n := p.m.client(t, "n1")
		wish := State{Pools: []string{"memory"}}
		must(t, n.Report(t.Context(), wish))
		p.m.now += SettlingTTL
		must(t, n.Report(t.Context(), wish))
		taken := false
		p.m.interrupt = func(done bool) error {
			switch taken = taken || done && p.m.keys[n.keys.zoneSlot("z")] != nil; {
			case taken && done:
				return errBroken
			case taken:
				return errLater
			}
			return nil
		}
		id := rand.Text()
		if err := p.round(n, "shop/web", id); !isUnknown(err) {
			t.Fatalf("got %v", err)
		}
		p.m.interrupt = nil
		if restarted {
			n = p.m.client(t, "n1")
		}
		p.m.now += time.Second
		got, err := n.Acquire(t.Context(), n.opt.Rates, "shop/web", id)
		must(t, err)
		if got.ID != id {
			t.Errorf("got the permit %s, want %s", got.ID, id)
		}
		p.all = append(p.all, given{got, "z", "n1", "shop/web", p.m.now})
		for _, late := range p.m.onTheWay {
			_ = late()
		}
		_ = p.round(p.m.client(t, "n2"), "shop/api", rand.Text())
		other := p.m.client(t, "n3")
		other.opt.Zone = "z2"
		_ = p.round(other, "shop/web", rand.Text())
		if p.check(n.opt.Rates.WorkloadInterval); len(p.all) != 1 {
			t.Errorf("restarted: %t: %d permits", restarted, len(p.all))
		}
	}
}

// A permit that could not be given back is given back with the next report. A lease that etcd does not let the node revoke holds up
// no report.
func TestReleaseIsRepeated(t *testing.T) {
	for _, denied := range []bool{false, true} {
		p := &permits{T: t, m: newMemory()}
		n := p.m.client(t, "n1")
		wish := State{Pools: []string{"memory"}}
		must(t, n.Report(t.Context(), wish))
		p.m.now += SettlingTTL
		must(t, p.round(n, "shop/web", rand.Text()))
		p.m.interrupt = func(bool) error { return errBroken }
		if err := n.Release(t.Context(), p.all[0].Permit); !isUnknown(err) {
			t.Fatalf("got %v", err)
		}
		first := denied
		p.m.interrupt = func(bool) error {
			if first {
				first = false
				return status.Error(codes.PermissionDenied, "etcdserver: permission denied")
			}
			return nil
		}
		must(t, n.Report(t.Context(), wish))
		if slot := p.m.keys[n.keys.zoneSlot("z")]; slot != nil {
			t.Errorf("denied: %t, the slot is %s", denied, slot)
		}
	}
}

// A pause that failed for sure leaves no lease behind; one that may be in force keeps it.
func TestLeaseOfAPause(t *testing.T) {
	for _, tt := range []struct {
		code   codes.Code
		grant  bool // the grant is not answered; else the transaction
		leases int
	}{
		{codes.PermissionDenied, false, 0}, {codes.Unavailable, false, 1}, {codes.Unavailable, true, 0},
	} {
		m := newMemory()
		half := 0
		m.interrupt = func(bool) error {
			if half++; tt.grant && half == 2 || !tt.grant && half == 3 {
				return status.Error(tt.code, "no")
			}
			return nil
		}
		if err := m.client(t, "").Pause(t.Context(), time.Hour); err == nil {
			t.Error("paused")
		}
		if got := len(m.leases); got != tt.leases {
			t.Errorf("%s, grant: %t: %d leases", tt.code, tt.grant, got)
		}
	}
}

// The node that lets a fleet settle may not learn that it did. Others rely on it, so it must not end before its time.
func TestSettlesAfterALostAnswer(t *testing.T) {
	for _, outage := range []int{1, 1000} { // half calls
		m := newMemory()
		n1, n2 := m.client(t, "n1"), m.client(t, "n2")
		wish, seen := State{Pools: []string{"memory"}}, 0
		settles := func() bool { return m.keys[n1.keys.settling()] != nil }
		var trouble func(bool) error
		trouble = func(bool) error {
			switch {
			case settles() && seen < outage:
				seen++
				return errBroken
			case settles(): // the other node comes before the next call
				m.interrupt = nil
				must(t, n2.Report(t.Context(), wish))
				m.interrupt = trouble
			}
			return nil
		}
		m.interrupt = trouble
		if err := n1.Report(t.Context(), wish); err == nil {
			t.Fatal("the answer was not lost")
		}
		m.interrupt = nil
		must(t, n2.Report(t.Context(), wish))
		must(t, n1.Report(t.Context(), wish))
		if !settles() {
			t.Errorf("%d half calls failed: the fleet does not settle", outage)
		}
	}
}
