package top

import (
	"time"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

// Event is one thing that the guard did.
type Event struct {
	At   time.Time // wall clock
	What string
	Why  string
}

// Options are how a node is looked at.
type Options struct {
	Signal   policy.Signal // whose ranking is shown at first
	Interval time.Duration // between two looks, at least
	Colour   bool
	ASCII    bool // the terminal shows no other characters
}

// Model is all that is shown. It changes by what happens to it, and is drawn by View.
type Model struct {
	options Options
	chosen  policy.Signal
	page    int // how many rows the list of pods is scrolled down
	paused  bool
	help    bool

	status   guard.Status
	statusAt time.Time
	lost     error // why there is nothing newer; nil while there is
	lostAt   time.Time

	ranking    guard.Ranking
	rankingAt  time.Time // zero = not known yet
	rankingErr error

	events []Event // newest last
	trends [policy.SignalCount]trend
}

// Reading is what was available of a signal at some time.
type Reading struct {
	Signal    policy.Signal
	At        time.Time
	Available int64
}

// NewModel is the model of a node that was looked at once. What was read before, the oldest
// first, tells the trends from the start.
func NewModel(o Options, st guard.Status, now time.Time, before ...Reading) *Model {
	m := &Model{options: o, chosen: o.Signal}
	for _, r := range before {
		if r.Signal < policy.SignalCount {
			m.trends[r.Signal].add(r.At, r.Available)
		}
	}
	m.Observe(st, nil, now)
	return m
}

// Observe takes the state of the node, or why there is none.
func (m *Model) Observe(st guard.Status, err error, now time.Time) {
	if err != nil {
		if m.lost == nil {
			m.lostAt = now
		}
		m.lost = err
		return
	}
	m.status, m.statusAt, m.lost = st, now, nil
	for _, s := range st.Signals {
		if s.Signal < policy.SignalCount && s.Status == policy.OK.String() {
			m.trends[s.Signal].add(now, s.Available)
		}
	}
}

// Rank takes the ranking for a signal, or why there is none. One for another signal than the
// chosen one came too late.
func (m *Model) Rank(s policy.Signal, r guard.Ranking, err error, now time.Time) {
	if s != m.chosen {
		return
	}
	m.rankingErr = err
	if err == nil {
		m.ranking, m.rankingAt = r, now
	}
}

// Happen takes what the guard did last, the newest at the end.
func (m *Model) Happen(events []Event) { m.events = events }

// signals are those that are shown: what the node has, and what is configured.
func (m *Model) signals() []guard.SignalStatus {
	var shown []guard.SignalStatus
	for _, s := range m.status.Signals {
		if s.Status != policy.Absent.String() || len(s.Thresholds) > 0 {
			shown = append(shown, s)
		}
	}
	return shown
}

// Press takes a key.
func (m *Model) Press(k Key) {
	if m.help {
		m.help = false
		return
	}
	switch k {
	case KeyUp, KeyLeft, KeyBackTab, 'k':
		m.choose(-1)
	case KeyDown, KeyRight, keyTab, 'j':
		m.choose(+1)
	case KeyPageUp:
		m.page -= pageRows
	case KeyPageDown, ' ':
		m.page += pageRows
	case KeyHome:
		m.page = 0
	case KeyEnd:
		m.page = len(m.ranking.Pods)
	case 'p':
		m.paused = !m.paused
	case '?', 'h':
		m.help = true
	default:
		if k >= '1' && k <= '9' {
			m.chooseAt(int(k - '1'))
		}
	}
	m.page = max(0, min(m.page, len(m.ranking.Pods)-1))
}

// pageRows is how far a page scrolls.
const pageRows = 10

// choose goes to the next signal or the one before, round the end.
func (m *Model) choose(step int) {
	shown := m.signals()
	for i := range shown {
		if shown[i].Signal == m.chosen {
			m.chooseAt((i + step + len(shown)) % len(shown))
			return
		}
	}
	m.chooseAt(0)
}

// chooseAt chooses a signal by where it is shown.
func (m *Model) chooseAt(i int) {
	if shown := m.signals(); i < len(shown) && shown[i].Signal != m.chosen {
		m.chosen, m.page = shown[i].Signal, 0
		m.ranking, m.rankingAt, m.rankingErr = guard.Ranking{}, time.Time{}, nil
	}
}
