package hook

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// fakeRuns replaces a program with runs that take a second each.
type fakeRuns struct {
	kinds []string
	at    []time.Duration
	start time.Time
	now   int
	most  int
}

func newFake(g *gate) (*runner, *fakeRuns) {
	f := &fakeRuns{start: time.Now()}
	r := newRunner(&program{}, g, func(queued, outcome) {})
	r.run = func(ctx context.Context, e queued) outcome {
		f.kinds, f.at = append(f.kinds, e.Kind), append(f.at, time.Since(f.start))
		f.now++
		f.most = max(f.most, f.now)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		f.now--
		return outcome{Err: ctx.Err()}
	}
	return r, f
}

// Put never blocks, only one program runs at a time, and a full queue drops the oldest events.
func TestRunnerQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFake(&gate{})
		var dropped []string
		begin := time.Now()
		for i := range queueLength + 3 {
			if e, full := r.put(queued{Kind: strconv.Itoa(i), At: time.Now()}); full {
				dropped = append(dropped, e.Kind)
			}
		}
		if time.Since(begin) > 0 || !slices.Equal(dropped, []string{"0", "1", "2"}) || len(r.queue) != queueLength {
			t.Errorf("after %s, dropped %v, %d wait", time.Since(begin), dropped, len(r.queue))
		}
		r.end()
		if _, full := r.put(queued{}); !full {
			t.Error("taken after the end")
		}
		r.loop(t.Context())
		if len(f.kinds) != queueLength || f.kinds[0] != "3" || f.kinds[queueLength-1] != "66" || f.most != 1 {
			t.Errorf("ran %v, %d at a time", f.kinds, f.most)
		}
	})
}

func TestRunnerEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFake(&gate{})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		for range 5 {
			r.put(queued{Kind: "stop", At: time.Now()})
		}
		r.loop(ctx)
		if took := time.Since(f.start); len(f.kinds) != 2 || took != 1500*time.Millisecond {
			t.Errorf("%d runs in %s", len(f.kinds), took)
		}
	})
}

// While criguard relieves pressure, no program starts until busyFor is over. Without free PIDs, no
// program ever starts.
func TestGate(t *testing.T) {
	for _, c := range []struct {
		name  string
		story func(g *gate)
		want  time.Duration
	}{
		{"open", func(*gate) {}, 0},
		{"relieved after 3 s", func(g *gate) { g.set(gateState{Busy: true}); time.Sleep(3 * time.Second); g.set(gateState{}) }, 3 * time.Second},
		{"never relieved", func(g *gate) { g.set(gateState{Busy: true}) }, busyFor},
		{"without tasks for an hour", func(g *gate) {
			g.set(gateState{Busy: true, NoTasks: true})
			time.Sleep(time.Minute)
			g.set(gateState{NoTasks: true})
			time.Sleep(time.Hour)
			g.set(gateState{})
		}, time.Hour + time.Minute},
		{"tasks come back to a busy node", func(g *gate) {
			g.set(gateState{NoTasks: true})
			time.Sleep(10 * time.Second)
			g.set(gateState{Busy: true})
		}, busyFor},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g gate
				r, f := newFake(&g)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go c.story(&g)
				synctest.Wait()
				r.put(queued{Kind: "stop", At: time.Now()})
				go func() { r.loop(ctx); close(done) }()
				time.Sleep(2 * time.Hour)
				cancel()
				<-done
				if len(f.at) != 1 || f.at[0] != c.want {
					t.Errorf("ran at %v, want %s", f.at, c.want)
				}
			})
		})
	}
}
