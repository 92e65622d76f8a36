package top

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/policy"
)

// paper is a terminal without a device.
type paper struct {
	keys    chan key
	resized chan os.Signal

	mu      sync.Mutex
	written strings.Builder
	width   int
	broken  error
}

func newPaper() *paper {
	return &paper{keys: make(chan key), resized: make(chan os.Signal), width: 80}
}

func (p *paper) readKeys() <-chan key      { return p.keys }
func (p *paper) Resized() <-chan os.Signal { return p.resized }

func (p *paper) Size() (width, height int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.width, 24, nil
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken != nil {
		return 0, p.broken
	}
	return p.written.Write(b)
}

// take returns the output since the last call.
func (p *paper) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.written.Reset()
	return p.written.String()
}

// script is a source with scripted answers.
type script struct {
	mu       sync.Mutex
	takes    time.Duration // duration of each answer
	err      error
	statuses int
	ranked   []policy.Signal
	atOnce   int
}

func (s *script) ask(ctx context.Context) error {
	s.mu.Lock()
	takes, err := s.takes, s.err
	s.atOnce++
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.atOnce--; s.mu.Unlock() }()
	select {
	case <-time.After(takes):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *script) Status(ctx context.Context) (api.Status, []Event, error) {
	err := s.ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses++
	return pressed(900 * mi), events(), err
}

func (s *script) Rank(ctx context.Context, sig policy.Signal) (api.Ranking, error) {
	s.mu.Lock()
	s.ranked = append(s.ranked, sig)
	s.mu.Unlock()
	err := s.ask(ctx)
	r := ranking()
	r.Signal = sig
	return r, err
}

func (s *script) set(takes time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes, s.err = takes, err
}

func (s *script) asked() (statuses int, ranked []policy.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	statuses, ranked = s.statuses, s.ranked
	s.statuses, s.ranked = 0, nil
	return statuses, ranked
}

// running runs a view until the test presses q or ends it in another way.
func running(t *testing.T, test func(ctx context.Context, p *paper, s *script, done chan error)) {
	synctest.Test(t, func(t *testing.T) {
		p, s, done := newPaper(), &script{takes: time.Millisecond}, make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := NewModel(Options{Signal: policy.MemoryAvailable, Interval: time.Second}, pressed(gi), time.Now())
		go func() { done <- Run(ctx, p, s, m) }()
		synctest.Wait()
		test(ctx, p, s, done)
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			p.keys <- 'q'
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if s.atOnce != 0 {
			t.Errorf("%d questions outlive the view", s.atOnce)
		}
	})
}

func TestRunPolls(t *testing.T) {
	running(t, func(_ context.Context, p *paper, s *script, _ chan error) {
		time.Sleep(10 * time.Second)
		if n, ranked := s.asked(); n < 9 || n > 11 || len(ranked) < 9 || len(ranked) > 11 {
			t.Errorf("asked %d times for the state and %d for the ranking in 10 s", n, len(ranked))
		}
		if screen := p.take(); !strings.Contains(screen, "leaky") || !strings.Contains(screen, "900Mi") || !strings.Contains(screen, "held back: grace") {
			t.Errorf("shows %q", screen)
		}
		// Unchanged lines are not sent again: only the clock changes.
		time.Sleep(2 * time.Minute)
		p.take()
		time.Sleep(10 * time.Second)
		if n := len(p.take()); n > 10*120 {
			t.Errorf("%d bytes written in 10 s in which nothing happens", n)
		}
		p.keys <- keyRedraw
		synctest.Wait()
		if screen := p.take(); !strings.Contains(screen, "leaky") {
			t.Errorf("ctrl-L does not draw anew: %q", screen)
		}
		p.mu.Lock()
		p.width = 120
		p.mu.Unlock()
		p.resized <- os.Interrupt
		synctest.Wait()
		if screen := p.take(); !strings.Contains(screen, "REQUEST") || !strings.HasPrefix(screen, clearAll) {
			t.Errorf("a new width does not draw anew: %q", screen)
		}
	})
}

// A node that answers slowly is polled less often.
func TestRunSlow(t *testing.T) {
	running(t, func(_ context.Context, _ *paper, s *script, _ chan error) {
		s.set(2*time.Second, nil)
		time.Sleep(5 * time.Second)
		s.asked()
		time.Sleep(60 * time.Second)
		if n, ranked := s.asked(); n > 3 || n < 2 || len(ranked) > 3 {
			t.Errorf("asked %d and %d times in a minute, though an answer takes 2 s", n, len(ranked))
		}
	})
}

// A newly chosen signal is ranked at once, even while another request is running.
func TestRunSwitches(t *testing.T) {
	running(t, func(_ context.Context, p *paper, s *script, _ chan error) {
		s.set(20*time.Second, nil)
		time.Sleep(2 * time.Second)
		s.asked()
		s.set(time.Millisecond, nil)
		p.keys <- '5'
		time.Sleep(10 * time.Millisecond)
		if _, ranked := s.asked(); len(ranked) != 1 || ranked[0] != policy.PIDAvailable {
			t.Errorf("ranks %v, want pid.available", ranked)
		}
		if screen := p.take(); !strings.Contains(screen, "PODS for pid.available, ranked by") {
			t.Errorf("shows %q", screen)
		}
	})
}

func TestRunPauses(t *testing.T) {
	running(t, func(_ context.Context, p *paper, s *script, _ chan error) {
		time.Sleep(1500 * time.Millisecond)
		p.keys <- 'p'
		time.Sleep(2 * time.Second)
		s.asked()
		time.Sleep(10 * time.Second)
		if n, ranked := s.asked(); n != 0 || len(ranked) != 0 {
			t.Errorf("asked %d and %d times while paused", n, len(ranked))
		}
		if screen := p.take(); !strings.Contains(screen, "VIEW PAUSED, 12s old") {
			t.Errorf("shows %q", screen)
		}
		p.keys <- keyDown // the user can still change the signal
		time.Sleep(10 * time.Millisecond)
		if n, ranked := s.asked(); n != 0 || len(ranked) != 1 {
			t.Errorf("asked %d and %d times after the signal was changed", n, len(ranked))
		}
		p.keys <- 'p'
		time.Sleep(10 * time.Millisecond)
		if n, ranked := s.asked(); n != 1 || len(ranked) != 1 {
			t.Errorf("asked %d and %d times at the end of the pause", n, len(ranked))
		}
	})
}

// A service is lost and comes back.
func TestRunLoses(t *testing.T) {
	running(t, func(_ context.Context, p *paper, s *script, _ chan error) {
		time.Sleep(2 * time.Second)
		s.set(time.Millisecond, control.ErrNoService)
		time.Sleep(6 * time.Second)
		if screen := p.take(); !strings.Contains(screen, "SERVICE LOST 5s ago; values 6s old") {
			t.Errorf("shows %q", screen)
		}
		s.set(time.Millisecond, nil)
		time.Sleep(2 * time.Second)
		if screen := p.take(); !strings.Contains(screen, "enforce mode") {
			t.Errorf("shows %q", screen)
		}
		// A service that hangs is also lost.
		s.set(time.Hour, nil)
		time.Sleep(statusDeadline + 2*time.Second)
		if screen := p.take(); !strings.Contains(screen, "SERVICE LOST") {
			t.Errorf("shows %q", screen)
		}
	})
}

func TestRunEnds(t *testing.T) {
	for name, end := range map[string]func(*paper){
		"q":                       func(p *paper) { p.keys <- 'q' },
		"ctrl-C":                  func(p *paper) { p.keys <- keyCtrlC },
		"q in help":               func(p *paper) { p.keys <- '?'; p.keys <- 'q' },
		"the terminal goes away":  func(p *paper) { close(p.keys) },
		"while a question is out": func(p *paper) { p.keys <- '2'; p.keys <- 'q' },
	} {
		t.Run(name, func(t *testing.T) {
			running(t, func(_ context.Context, p *paper, s *script, done chan error) {
				s.set(time.Hour, nil)
				time.Sleep(2 * time.Second)
				begin := time.Now()
				end(p)
				if err := <-done; err != nil {
					t.Error(err)
				}
				done <- nil
				if took := time.Since(begin); took > time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
	t.Run("terminated", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Minute, cancel)
			m := NewModel(Options{Interval: time.Second}, pressed(gi), time.Now())
			if err := Run(ctx, newPaper(), &script{}, m); err != nil || ctx.Err() == nil {
				t.Errorf("ends with %v", err)
			}
		})
	})
	t.Run("cannot write", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPaper()
			p.broken = errors.New("input/output error")
			m := NewModel(Options{Interval: time.Second}, pressed(gi), time.Now())
			if err := Run(t.Context(), p, &script{}, m); !errors.Is(err, p.broken) {
				t.Errorf("ends with %v", err)
			}
		})
	})
}
