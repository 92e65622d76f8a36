package hook

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// fakeRuns takes the place of a program: each run takes a second.
type fakeRuns struct {
	kinds []string
	at    []time.Duration
	start time.Time
	now   int
	most  int
}

func newFake(g *Gate) (*Runner, *fakeRuns) {
	f := &fakeRuns{start: time.Now()}
	r := NewRunner(Program{}, g, func(Event, Result) {})
	r.run = func(ctx context.Context, e Event) Result {
		f.kinds, f.at = append(f.kinds, e.Kind), append(f.at, time.Since(f.start))
		f.now++
		f.most = max(f.most, f.now)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		f.now--
		return Result{Err: ctx.Err()}
	}
	return r, f
}

// Put never waits, one runs at a time, and of too many the oldest are dropped.
func TestRunnerQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFake(&Gate{})
		var dropped []string
		begin := time.Now()
		for i := range QueueLength + 3 {
			if e, full := r.Put(Event{Kind: strconv.Itoa(i), At: time.Now()}); full {
				dropped = append(dropped, e.Kind)
			}
		}
		if time.Since(begin) > 0 || !slices.Equal(dropped, []string{"0", "1", "2"}) || len(r.queue) != QueueLength {
			t.Errorf("after %s, dropped %v, %d wait", time.Since(begin), dropped, len(r.queue))
		}
		r.Close()
		if _, full := r.Put(Event{}); !full {
			t.Error("taken after the end")
		}
		r.Run(t.Context())
		if len(f.kinds) != QueueLength || f.kinds[0] != "3" || f.kinds[QueueLength-1] != "66" || f.most != 1 {
			t.Errorf("ran %v, %d at a time", f.kinds, f.most)
		}
	})
}

func TestRunnerEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFake(&Gate{})
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		for range 5 {
			r.Put(Event{Kind: "stop", At: time.Now()})
		}
		r.Run(ctx)
		if took := time.Since(f.start); len(f.kinds) != 2 || took != 1500*time.Millisecond {
			t.Errorf("%d runs in %s", len(f.kinds), took)
		}
	})
}

// While the node is being relieved nothing is started, for a while; without tasks
// nothing is, however long.
func TestGate(t *testing.T) {
	for _, c := range []struct {
		name  string
		story func(g *Gate)
		want  time.Duration
	}{
		{"open", func(*Gate) {}, 0},
		{"relieved after 3 s", func(g *Gate) { g.Set(State{Busy: true}); time.Sleep(3 * time.Second); g.Set(State{}) }, 3 * time.Second},
		{"never relieved", func(g *Gate) { g.Set(State{Busy: true}) }, BusyFor},
		{"without tasks for an hour", func(g *Gate) {
			g.Set(State{Busy: true, NoTasks: true})
			time.Sleep(time.Minute)
			g.Set(State{NoTasks: true})
			time.Sleep(time.Hour)
			g.Set(State{})
		}, time.Hour + time.Minute},
		{"tasks come back to a busy node", func(g *Gate) {
			g.Set(State{NoTasks: true})
			time.Sleep(10 * time.Second)
			g.Set(State{Busy: true})
		}, BusyFor},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g Gate
				r, f := newFake(&g)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go c.story(&g)
				synctest.Wait()
				r.Put(Event{Kind: "stop", At: time.Now()})
				go func() { r.Run(ctx); close(done) }()
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
