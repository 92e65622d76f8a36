package trace

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// state is what a reader of a trace knows after a line, by its fields' JSON.
type state struct {
	signals map[policy.Signal]Observation
	pods    map[string]Pod
	images  []Image
}

// follow applies a line as the simulation does.
func (s *state) follow(l *Line) {
	for sig, o := range l.Signals {
		old := s.signals[sig]
		keep(&o.Available, old.Available)
		keep(&o.Capacity, old.Capacity)
		s.signals[sig] = o
	}
	if l.Pods != nil {
		s.pods = map[string]Pod{}
	}
	for _, key := range l.EndedPods {
		delete(s.pods, key)
	}
	for _, p := range append(l.Pods, l.ChangedPods...) {
		key := p.Key()
		p = p.Over(s.pods[key])
		p.id = ""
		s.pods[key] = p
	}
	if l.Images != nil {
		s.images = l.Images
	}
}

// randomLine returns the state of a node with some of its amounts changed. A pod may start, end or be created
// again.
func randomLine(r *rand.Rand, at time.Duration) Line {
	few := func() *Quantity { return QuantityOf(r.Int64N(3)) }
	l := Line{
		At: api.Duration(at), Layout: "single", Pods: []Pod{}, Images: []Image{{ID: "1", Size: Quantity(r.Int64N(2))}},
		Signals: map[policy.Signal]Observation{policy.MemoryAvailable: {few(), few()}, policy.NodeFSAvailable: {few(), few()}},
	}
	for i := range 4 {
		if r.IntN(5) == 0 {
			continue
		}
		created, pids := api.Duration(r.Int64N(2)), r.Int64N(2)
		p := Pod{Name: "d/" + strconv.Itoa(i), MemoryUsage: few(), DiskUsage: &Disk{Rootfs: *few()}, PIDs: &pids, Created: &created, Labels: map[string]string{"a": "b"}}
		if i > 0 {
			p.UID = strconv.Itoa(i)
		}
		l.Pods = append(l.Pods, p)
	}
	return l
}

// A reader of a written trace knows the same after each line as the writer.
func TestWriterRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	w := NewWriter(&text)
	var want []state
	for i := range 500 {
		l := randomLine(r, time.Duration(i)*time.Second)
		s := state{maps.Clone(l.Signals), map[string]Pod{}, l.Images}
		for _, p := range l.Pods {
			s.pods[p.Key()] = p
		}
		want = append(want, s)
		if err := w.Write(l); err != nil {
			t.Fatal(err)
		}
	}
	in := NewReader(strings.NewReader(text.String()))
	got := state{signals: map[policy.Signal]Observation{}}
	for i := range want {
		l, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if l.Recorded != (i == 0) {
			t.Errorf("line %d: recorded is %t", i+1, l.Recorded)
		}
		if got.follow(&l); !reflect.DeepEqual(got, want[i]) {
			a, _ := json.Marshal(got.pods)
			b, _ := json.Marshal(want[i].pods)
			t.Fatalf("line %d: %s, want %s", i+1, a, b)
		}
	}
}

// A line has only what changed.
func TestWriterWritesChanges(t *testing.T) {
	var text strings.Builder
	w := NewWriter(&text)
	line := func(at time.Duration, available, used int64, pods ...string) Line {
		l := Line{At: api.Duration(at), Layout: "split", Pods: []Pod{}, Images: []Image{{ID: "1"}},
			Signals: map[policy.Signal]Observation{policy.MemoryAvailable: {QuantityOf(available), QuantityOf(9)}}}
		for _, uid := range pods {
			l.Pods = append(l.Pods, Pod{Name: "d/" + uid, UID: uid, MemoryUsage: QuantityOf(used)})
		}
		return l
	}
	for _, l := range []Line{line(0, 5, 1, "a"), line(1, 5, 1, "a"), line(2, 4, 2, "a"), line(3, 4, 2, "b")} {
		if err := w.Write(l); err != nil {
			t.Fatal(err)
		}
	}
	const want = `{"at":"0s","signals":{"memory.available":{"available":5,"capacity":9}},"pods":[{"name":"d/a","uid":"a","memory_usage":1}],"images":[{"id":"1","size":0}],"layout":"split","recorded":true}
{"at":"1ns"}
{"at":"2ns","signals":{"memory.available":{"available":4}},"changed_pods":[{"uid":"a","memory_usage":2}]}
{"at":"3ns","ended_pods":["a"],"changed_pods":[{"name":"d/b","uid":"b","memory_usage":2}]}
`
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
}

// While the kubelet replaces a sandbox, a pod may have two. A line names a pod once.
func TestWriterNamesPodsOnce(t *testing.T) {
	at := func(d api.Duration) *api.Duration { return &d }
	for _, reversed := range []bool{false, true} {
		var text strings.Builder
		w := NewWriter(&text)
		pods := []Pod{{Name: "d/a", UID: "a", Created: at(1)}, {Name: "d/a", UID: "a", Created: at(2)}}
		if reversed {
			slices.Reverse(pods)
		}
		for i, pods := range [][]Pod{pods, {pods[0]}, pods} {
			if err := w.Write(Line{At: api.Duration(i), Pods: pods}); err != nil {
				t.Fatal(err)
			}
		}
		in := NewReader(strings.NewReader(text.String()))
		for i := range 3 {
			l, err := in.Next()
			if err != nil {
				t.Fatalf("line %d: %v in\n%s", i+1, err, text.String())
			}
			if i == 0 && (len(l.Pods) != 1 || *l.Pods[0].Created != 2) {
				t.Errorf("line 1: %+v", l.Pods)
			}
		}
	}
}
