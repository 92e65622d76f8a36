package trace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/policy"
)

// dueNode is a node on which the threshold of one signal is due all the time.
type dueNode struct{ policy.Signal }

func (dueNode) Observe() {}

func (n dueNode) Snapshot() api.State {
	return api.State{
		Observations: &policy.Observations{},
		Pressure:     policy.Pressure{Met: []policy.Met{{Threshold: policy.Threshold{Signal: n.Signal}, Due: true}}},
	}
}

func (dueNode) Pause() time.Duration       { return 250 * time.Millisecond }
func (dueNode) SamplePause() time.Duration { return 10 * time.Second }

// While a threshold of memory is due, each observation is recorded. One of a disk may be due for hours, and the trace
// would fill the disk.
func TestRecordWhileDue(t *testing.T) {
	for signal, want := range map[policy.Signal]int{policy.MemoryAvailable: 40, policy.NodeFSAvailable: 1} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 9900*time.Millisecond)
			defer cancel()
			began := time.Now()
			var text strings.Builder
			if err := Record(ctx, Source{
				Observer: dueNode{signal}, Now: func() time.Duration { return time.Since(began) },
				Layout: func() policy.Layout { return policy.SingleFS },
				Pods:   func() ([]inventory.Pod, []policy.Candidate) { return nil, nil },
				Images: func() []Image { return nil },
			}, &text, time.Minute); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(text.String(), "\n"); n != want {
				t.Errorf("%s: %d lines in 10 s, want %d", signal, n, want)
			}
		})
	}
}

// goneNode has a signal whose reading fails at the third to fifth observation.
type goneNode struct {
	dueNode
	observed int
}

func (n *goneNode) Observe() { n.observed++ }

func (n *goneNode) Snapshot() api.State {
	obs := policy.Observations{policy.SwapAvailable: {Available: 10, Capacity: 4000, Status: policy.OK}}
	if n.observed >= 3 && n.observed <= 5 {
		obs[policy.SwapAvailable] = policy.Observation{Status: policy.Failed}
	}
	return api.State{Observations: &obs}
}

// A signal that is not read any more has no capacity in the trace, instead of its last value. A signal that never was is not in
// the trace.
func TestRecordSignalThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1600*time.Millisecond)
		defer cancel()
		began := time.Now()
		var text strings.Builder
		if err := Record(ctx, Source{
			Observer: &goneNode{}, Now: func() time.Duration { return time.Since(began) },
			Layout: func() policy.Layout { return policy.SingleFS },
			Pods:   func() ([]inventory.Pod, []policy.Candidate) { return nil, nil },
			Images: func() []Image { return nil },
		}, &text, 250*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		var got []string
		lines := NewReader(strings.NewReader(text.String()))
		for l, err := lines.Next(); err == nil; l, err = lines.Next() {
			if o, ok := l.Signals[policy.SwapAvailable]; ok {
				got = append(got, fmt.Sprintf("%s %d/%d", l.At, *o.Available, *o.Capacity))
			}
			if len(l.Signals) > 1 {
				t.Errorf("at %s: %v", l.At, l.Signals)
			}
		}
		if want := []string{"0s 10/4000", "500ms 0/0", "1.25s 10/4000"}; !slices.Equal(got, want) {
			t.Errorf("signals %q, want %q", got, want)
		}
	})
}

// shortNode has 1000 available whenever the recorder looks.
type shortNode struct{ dueNode }

func (shortNode) Snapshot() api.State {
	obs := policy.Observations{policy.MemoryAvailable: {Available: 1000, Capacity: 4000, Status: policy.OK}}
	return api.State{Observations: &obs}
}

// A shortage that the service ended at once is in the trace as the service saw it, in the order of time, and each
// of its stops once. A service that does not answer is no hindrance.
func TestRecordTakesPassesOfService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 9900*time.Millisecond)
		defer cancel()
		began := time.Now()
		stop := func(after time.Duration, available int64) api.Pass {
			return api.Pass{
				At: api.Duration(time.Hour + after), Time: began.Add(after), Stop: &api.StopView{},
				Signals: []api.SignalView{
					{Signal: policy.MemoryAvailable, Available: available, Capacity: 4000, Status: "ok"},
					{Signal: policy.SwapAvailable, Status: "absent"},
				},
			}
		}
		all := []api.Pass{stop(-time.Second, 1), stop(3100*time.Millisecond, 999), stop(3200*time.Millisecond, 998), stop(9800*time.Millisecond, 997)}
		all[1].Stop = nil // nothing was stopped: the recorder's own readings are enough
		asked, since := 0, began
		var text strings.Builder
		if err := Record(ctx, Source{
			Observer: shortNode{}, Now: func() time.Duration { return time.Hour + time.Since(began) },
			Layout: func() policy.Layout { return policy.SingleFS },
			Pods:   func() ([]inventory.Pod, []policy.Candidate) { return nil, nil },
			Images: func() []Image { return nil },
			Passes: func(context.Context) (got []api.Pass, err error) {
				if asked++; asked%2 == 0 {
					return nil, io.ErrUnexpectedEOF
				}
				for _, p := range all {
					if !p.Time.Before(since) && !p.Time.After(time.Now()) {
						got = append(got, p)
					}
				}
				since = time.Now().Add(1)
				return got, nil
			},
		}, &text, time.Second); err != nil {
			t.Fatal(err)
		}
		var got []string
		lines := NewReader(strings.NewReader(text.String()))
		for {
			l, err := lines.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if first := l.At == 0; first == l.Began.IsZero() || first && !l.Began.Equal(began) {
				t.Errorf("at %s: began %s", l.At, l.Began)
			}
			if a := l.Signals[policy.MemoryAvailable].Available; a != nil && *a != 1000 {
				got = append(got, fmt.Sprintf("%s %d", l.At, *a))
			}
		}
		if want := []string{"3.2s 998", "9.8s 997"}; !slices.Equal(got, want) {
			t.Errorf("short at %v, want %v\n%s", got, want, text.String())
		}
	})
}
