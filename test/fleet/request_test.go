package fleet_test

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/fleet/agent"
)

// said is what a guard or an agent says of a run: an answer that the guard got, and a permit or its release; or what a prober
// measured.
type said struct {
	Answer *answered `json:",omitempty"`
	Grant  *grant    `json:",omitempty"`
	Probe  *probe    `json:",omitempty"`
}

// answered is an answer that a guard got to a request for a permit.
type answered struct {
	Request string // its ID
	Node    string
	Began   time.Duration // when the node began to want the stop
	At      time.Duration
	Alone   time.Duration // for how long the node was alone, at most
	Again   bool          // the node was killed and asks again
	Answer  agent.Answer
}

// mostPending is how long a request may be pending: each of its calls takes at most a second, and reports come between.
const mostPending = 20 * time.Second

// requests accounts for every request of a run, by its ID.
type requests struct {
	patience time.Duration

	mu      sync.Mutex
	last    map[string]answered      // the last answer to each
	pending map[string]time.Duration // since when the fleet has been deciding
	permits map[string]string        // the request that was given a permit
	again   map[string]bool          // the requests that were repeated after a kill
	zero    map[string]int           // denials at rate 0, by their reason
	longest time.Duration            // for which one was pending
	wrong   []string
}

func newRequests(patience time.Duration) *requests {
	return &requests{patience: patience, last: map[string]answered{}, pending: map[string]time.Duration{}, permits: map[string]string{}, again: map[string]bool{}, zero: map[string]int{}}
}

// killed notes that a node was killed: the time until it asks again is not the fleet's.
func (r *requests) killed(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.pending, func(id string, _ time.Duration) bool { return r.last[id].Node == node })
}

// add adds an answer. Those to one request come in their order.
func (r *requests) add(x answered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last[x.Request].Answer.State == agent.Granted {
		r.fail(x, "was granted before")
	}
	r.last[x.Request] = x
	if x.Again {
		r.again[x.Request] = true
	}
	if x.Answer.State == agent.Pending {
		if _, has := r.pending[x.Request]; !has {
			r.pending[x.Request] = x.At
		}
		r.longest = max(r.longest, x.At-r.pending[x.Request])
		return
	}
	delete(r.pending, x.Request)
	switch a := x.Answer; {
	case a.State == agent.Denied && a.Reason != "":
		if strings.HasSuffix(a.Reason, ": 0/s") {
			r.zero[a.Reason]++
		}
	case a.State == agent.Granted && a.Source == agent.Fleet && a.ID != "" && a.Deadline > 0:
		if other, has := r.permits[a.ID]; has {
			r.fail(x, "has the permit of "+other)
		}
		r.permits[a.ID] = x.Request
	case a.State != agent.Granted || a.ID != "":
		r.fail(x, "is neither granted nor denied with a reason")
	case a.Source == agent.Trickle && x.At-x.Began < r.patience && x.Alone < 2*time.Minute:
		r.fail(x, fmt.Sprintf("trickles after %s of %s", x.At-x.Began, r.patience))
	case a.Source == agent.Local && x.Alone < 15*time.Minute || a.Source != agent.Local && a.Source != agent.Trickle:
		r.fail(x, "is granted without a reason")
	}
}

func (r *requests) fail(x answered, text string) {
	r.wrong = append(r.wrong, fmt.Sprintf("request %s %s: %+v", x.Request, text, x))
}

// check accounts for every request: it was granted, denied with a reason when the run ended, or out of patience. Nodes that
// are killed may leave one for which the fleet had not decided.
func (r *requests) check(t *testing.T, l *ledger, killed func(node string) bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.wrong {
		t.Error(text)
	}
	ends, again := map[string]int{}, 0
	for id, x := range r.last {
		if r.again[id] && x.Answer.Source == agent.Fleet {
			again++
		}
		switch a := x.Answer; {
		case a.State == agent.Granted:
			ends["granted by "+a.Source]++
		case a.State == agent.Denied:
			ends["denied at the end"]++
		case killed(x.Node):
			ends["killed meanwhile"]++
		default:
			t.Errorf("request %s had no decision at the end: %+v", id, x)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, request := range r.permits {
		if g, has := l.grants[id]; !has || g.Node != r.last[request].Node {
			t.Errorf("request %s has the permit %s, which is of %+v", request, id, g)
		}
	}
	for id, g := range l.grants {
		if _, has := r.permits[id]; !has {
			t.Errorf("no request has the permit %+v", g)
		}
	}
	t.Logf("%d requests: %v; %d repeated after a kill, of which %d got a permit; the longest time without a decision %s", len(r.last), ends, len(r.again), again, r.longest)
	if len(r.again) == 0 {
		t.Error("no agent that was killed asked again")
	}
	if r.longest > mostPending {
		t.Errorf("a request was pending for %s", r.longest)
	}
	if ends["granted by "+agent.Trickle] == 0 {
		t.Error("no patience ended: the test does not cover the trickle")
	}
}
