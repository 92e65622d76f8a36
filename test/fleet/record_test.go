package fleet_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/test/etcdtest"
)

// ledger holds every grant of a run, by permit.
type ledger struct {
	mu     sync.Mutex
	grants map[string]grant
	twice  []grant
	errors map[string]int
	lost   time.Duration // when etcd lost its data; 0 = never
	slot   time.Duration // what a zone's slot lasts at least after that
}

func newLedger() *ledger { return &ledger{grants: map[string]grant{}, errors: map[string]int{}} }

// record adds a grant, or its release.
func (l *ledger) record(g grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, has := l.grants[g.Permit.ID]; has && g.ReleasedAt == 0 {
		l.twice = append(l.twice, g)
	}
	l.grants[g.Permit.ID] = g
}

// hear adds the grant or the release that an agent says.
func (l *ledger) hear(s said) {
	if s.Grant != nil {
		l.record(*s.Grant)
	}
}

// last returns the last grant that was not released.
func (l *ledger) last() (last grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.grants {
		if g.ReleasedAt == 0 && g.Permit.Since > last.Permit.Since {
			last = g
		}
	}
	return last
}

// most returns the largest number of permits that one zone got after a time.
func (l *ledger) most(after time.Duration) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	zones := map[string]int{}
	for _, g := range l.grants {
		if g.Permit.Since > after {
			zones[g.Zone]++
			n = max(n, zones[g.Zone])
		}
	}
	return n
}

func (l *ledger) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reason := etcd.Reason(err)
	if reason == "refused" {
		reason = err.Error()
	}
	l.errors[reason]++
}

// failures returns how many calls failed for a reason.
func (l *ledger) failures(reason string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errors[reason]
}

// zones returns the number of permits of each zone.
func (l *ledger) zones() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	zones := map[string]int{}
	for _, g := range l.grants {
		zones[g.Zone]++
	}
	return zones
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.grants)
}

// check counts the invariants over the whole run: no permit is granted twice, and a slot has one permit until its time
// has passed or the permit was released.
func (l *ledger) check(t *testing.T, interval time.Duration) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.twice {
		t.Errorf("granted twice: %+v", g)
	}
	type slot struct{ kind, name string }
	slots := map[slot][]grant{}
	for _, g := range l.grants {
		if g.Acquired >= g.Permit.Deadline+5*time.Second {
			t.Errorf("granted after its deadline: %+v", g)
		}
		for _, s := range []slot{{"zone", g.Zone}, {"workload", g.Workload}} {
			slots[s] = append(slots[s], g)
		}
	}
	pairs := 0
	for s, grants := range slots {
		slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.Acquired, b.Acquired) })
		for i, g := range grants[1:] {
			before := grants[i]
			length := before.Permit.Slot
			switch {
			case s.kind == "workload":
				length = interval
			case l.lost > 0 && before.Permit.Since > l.lost:
				length = max(length, l.slot)
			}
			free := before.Permit.Since + length
			if before.ReleasedAt > 0 {
				free = before.ReleasedAt
			}
			pairs++
			if g.Acquired < free {
				t.Errorf("%s %s: permit %s came at %s, %s before the slot of %s was free", s.kind, s.name, g.Permit.ID, g.Acquired, free-g.Acquired, before.Permit.ID)
			}
		}
	}
	t.Logf("%d permits, %d pairs in the same slot; errors: %v", len(l.grants), pairs, l.errors)
}

// event is a change of a slot in etcd.
type event struct {
	key      string
	permit   string // "" = the slot became free
	node     string
	revision int64
	at       time.Duration // when the recorder saw it
}

// recorder records all changes of all slots. It misses none: it resumes at the revision after the last.
type recorder struct {
	cluster *etcdtest.Cluster

	mu     sync.Mutex
	next   int64
	events []event
	err    error
}

// startRecorder records until stop is called.
func startRecorder(t testing.TB, c *etcdtest.Cluster) (r *recorder, stop func()) {
	t.Helper()
	r = &recorder{cluster: c, next: 1}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if r.watch(ctx, c.Members[i%len(c.Members)].Conn()) {
				return
			}
		}
	})
	stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	t.Cleanup(stop)
	return r, stop
}

// watch records from one member until the connection fails, a second passes without progress, or ctx ends. It reports
// true if there is a gap.
func (r *recorder) watch(ctx context.Context, conn *grpc.ClientConn) (gap bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return false
	}
	err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(prefix), RangeEnd: []byte(strings.TrimSuffix(prefix, "/") + "0"), StartRevision: r.reached() + 1,
	}}})
	if err != nil {
		return false
	}
	quiet := time.AfterFunc(time.Second, cancel) // the member may be stopped
	defer quiet.Stop()
	for {
		resp, err := stream.Recv()
		if err != nil {
			return false
		}
		quiet.Reset(time.Second)
		if resp.CompactRevision > 0 {
			r.mu.Lock()
			r.err = errors.New("the recorder missed events before a compaction")
			r.mu.Unlock()
			return true
		}
		r.add(resp.Events)
	}
}

func (r *recorder) add(events []*mvccpb.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		r.next = e.Kv.ModRevision + 1
		key := strings.TrimPrefix(string(e.Kv.Key), prefix)
		if !strings.HasPrefix(key, "s/") && !strings.HasPrefix(key, "w/") {
			continue
		}
		var h etcd.Holder
		if e.Type == mvccpb.Event_PUT && json.Unmarshal(e.Kv.Value, &h) != nil {
			r.err = errors.New("a slot has the value " + string(e.Kv.Value))
		}
		r.events = append(r.events, event{key, h.Permit, h.Node, e.Kv.ModRevision, cgroup.BootTime()})
	}
}

// reached returns the last recorded revision.
func (r *recorder) reached() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next - 1
}

// check compares etcd's history with the ledger: a slot is never replaced, every permit took both slots in one transaction,
// also when it was requested again after its slots became free, and every slot became free again. It returns how long slots
// were taken.
func (r *recorder) check(t *testing.T, l *ledger) (taken map[string][]span) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	must(t, r.err)
	type put struct {
		permit   string
		revision int64
	}
	puts, permits, open := map[put]string{}, map[string]bool{}, map[string]event{}
	taken = map[string][]span{}
	for _, e := range r.events {
		before, isOpen := open[e.key]
		if e.permit == "" {
			taken[e.key] = append(taken[e.key], span{before.at, e.at})
			delete(open, e.key)
			continue
		}
		if isOpen {
			t.Errorf("%s: %s replaced %s", e.key, e.permit, before.permit)
		}
		open[e.key] = e
		permits[e.permit] = true
		puts[put{e.permit, e.revision}] += e.key[:1]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, slots := range puts {
		if slots != "sw" && slots != "ws" {
			t.Errorf("permit %s took the slots %q in one transaction", p.permit, slots)
		}
	}
	for id := range l.grants {
		if !permits[id] {
			t.Errorf("permit %s is not in etcd's history", id)
		}
	}
	t.Logf("etcd recorded %d permits, of which %d were granted, and %d slots are taken", len(permits), len(l.grants), len(open))
	return taken
}

// span is from when to when a slot was taken.
type span struct{ from, to time.Duration }

// awaitFree waits until all slots are free, whether their agents were killed or not, and the recorder has seen it.
func (r *recorder) awaitFree(t *testing.T, c *etcdtest.Cluster) {
	t.Helper()
	last := cgroup.BootTime()
	etcdtest.Wait(t, func() error {
		kv := pb.NewKVClient(c.Members[c.Leader(t)].Conn())
		for _, kind := range []string{"s/", "w/"} {
			resp, err := kv.Range(t.Context(), &pb.RangeRequest{Key: []byte(prefix + kind), RangeEnd: []byte(prefix + strings.TrimSuffix(kind, "/") + "0"), CountOnly: true})
			if err != nil {
				return err
			}
			if resp.Count > 0 {
				return fmt.Errorf("%d slots are taken", resp.Count)
			}
			if resp.Header.Revision > r.reached() {
				return errors.New("the recorder is behind")
			}
		}
		return nil
	})
	if took := cgroup.BootTime() - last; took > fast().WorkloadInterval+10*time.Second {
		t.Errorf("the last slot became free after %s", took)
	}
}
