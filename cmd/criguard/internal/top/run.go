package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// terminal is the screen and keyboard that Run uses. TTY implements it.
type terminal interface {
	io.Writer
	Size() (width, height int, err error)
	readKeys() <-chan key // closed when the terminal is lost
	Resized() <-chan os.Signal
}

const (
	// statusDeadline is the timeout of a status request; a healthy service answers within
	// milliseconds.
	statusDeadline = 5 * time.Second
	// rankDeadline leaves enough time to measure the pods' disk usage.
	rankDeadline = 30 * time.Second
)

// rankAnswer is a ranking or the error that prevented it.
type rankAnswer struct {
	signal  policy.Signal
	ranking api.Ranking
	err     error
}

type statusAnswer struct {
	status api.Status
	passes []Event
	err    error
}

// Run shows a model on a terminal and keeps it up to date until the user quits, the terminal is
// lost, or ctx ends.
func Run(ctx context.Context, t terminal, src Source, m *Model) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	statuses := newPoll[statusAnswer](m.options.Interval, statusDeadline)
	defer statuses.end()
	ranks := newPoll[rankAnswer](m.options.Interval, rankDeadline)
	defer ranks.end()
	// The clock and the ages have a resolution of one second.
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	s := screen{terminal: t, colour: m.options.Colour}
	for {
		if err := s.draw(m, time.Now()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-t.Resized():
			s.shown = nil
		case k, ok := <-t.readKeys():
			if !ok || k == keyCtrlC || k == 'q' || k == 'Q' {
				return nil
			}
			if k == keyRedraw {
				s.shown = nil
			}
			before, paused := m.chosen, m.paused
			m.press(k)
			if m.chosen != before || paused {
				ranks.restart()
			}
			if paused {
				statuses.restart()
			}
		case a := <-statuses.answers:
			if !statuses.hurry {
				m.observe(a.status, a.err, time.Now())
			}
			if a.passes != nil {
				m.Happen(a.passes)
			}
			statuses.answered()
		case a := <-ranks.answers:
			if !ranks.hurry {
				m.Rank(a.signal, a.ranking, a.err, time.Now())
			}
			ranks.answered()
		case <-statuses.due.C:
			if !m.paused {
				statuses.start(ctx, func(ctx context.Context) (a statusAnswer) {
					a.status, a.passes, a.err = src.Status(ctx)
					return a
				})
			}
		case <-ranks.due.C:
			if !m.paused || m.rankingAt.IsZero() {
				signal := m.chosen
				ranks.start(ctx, func(ctx context.Context) rankAnswer {
					r, err := src.Rank(ctx, signal)
					return rankAnswer{signal, r, err}
				})
			}
		}
	}
}

// screen is the content of a terminal; it sends only lines that changed.
type screen struct {
	terminal terminal
	colour   bool
	shown    []string
	width    int
}

// Sequences that position the cursor, clear the rest of a line, and clear the screen (ECMA-48: CUP,
// EL and ED).
const (
	goTo      = "\x1b[%d;1H"
	clearRest = "\x1b[K"
	clearAll  = "\x1b[2J"
)

func (s *screen) draw(m *Model, now time.Time) error {
	width, height, err := s.terminal.Size()
	if err != nil {
		return fmt.Errorf("ask size of terminal: %w", err)
	}
	lines := m.view(width, height, now)
	var b strings.Builder
	if s.shown == nil || width != s.width || len(lines) != len(s.shown) {
		s.shown, s.width = make([]string, len(lines)), width
		b.WriteString(clearAll)
	}
	for i, l := range lines {
		if text := l.encode(s.colour); text != s.shown[i] {
			fmt.Fprintf(&b, goTo, i+1)
			b.WriteString(text)
			if l.columns() < width {
				b.WriteString(clearRest)
			}
			s.shown[i] = text
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if _, err := io.WriteString(s.terminal, b.String()); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}
