package top

import (
	"math"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/policy"
)

// Event is one thing that criguard did.
type Event struct {
	At   time.Time // wall clock
	What string
	Why  string
}

// Options configure the view of a node.
type Options struct {
	Signal   policy.Signal // the signal whose ranking is shown first
	Interval time.Duration // minimum time between two polls
	Colour   bool
	ASCII    bool // the terminal shows ASCII only
}

// Model is everything that the view shows. Its methods update it, and View draws it.
type Model struct {
	options Options
	chosen  policy.Signal
	page    int // rows that the pod list is scrolled down
	paused  bool
	help    bool
	line    int // lines that the help is scrolled down

	status   api.Status
	statusAt time.Time
	lost     error // the last poll's error, nil after a success
	lostAt   time.Time

	ranking    api.Ranking
	rankingAt  time.Time // zero: not known yet
	rankingErr error

	events []Event // newest last
	trends [policy.SignalCount]trend
}

// Reading is the available amount of a signal at some time.
type Reading struct {
	Signal    policy.Signal
	At        time.Time
	Available int64
}

// NewModel returns a model that starts with one observation. Earlier readings, oldest first, make
// the trends known from the start.
func NewModel(o Options, st api.Status, now time.Time, before ...Reading) *Model {
	m := &Model{options: o, chosen: o.Signal}
	for _, s := range policy.Signals() {
		m.trends[s].disk = s.IsDisk()
	}
	for _, r := range before {
		if r.Signal < policy.SignalCount {
			m.trends[r.Signal].add(r.At, r.Available)
		}
	}
	m.observe(st, nil, now)
	return m
}

// observe updates the node's state, or records why reading it failed.
func (m *Model) observe(st api.Status, err error, now time.Time) {
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

// Rank updates the ranking for a signal, or records why it failed. It ignores an answer for a
// signal that is no longer chosen.
func (m *Model) Rank(s policy.Signal, r api.Ranking, err error, now time.Time) {
	if s != m.chosen {
		return
	}
	m.rankingErr = err
	if err == nil {
		m.ranking, m.rankingAt = r, now
	}
}

// Happen replaces the events with criguard's last ones, newest last.
func (m *Model) Happen(events []Event) { m.events = events }

// signals returns the signals to show: those that the node has and those that have thresholds.
func (m *Model) signals() []api.SignalStatus {
	var shown []api.SignalStatus
	for _, s := range m.status.Signals {
		if s.Status != policy.Absent.String() || len(s.Thresholds) > 0 {
			shown = append(shown, s)
		}
	}
	return shown
}

// press handles a key.
func (m *Model) press(k key) {
	if m.help {
		m.pressInHelp(k)
		return
	}
	switch k {
	case keyUp, keyLeft, keyBackTab, 'k':
		m.choose(-1)
	case keyDown, keyRight, keyTab, 'j':
		m.choose(+1)
	case 'p':
		m.paused = !m.paused
	case '?', 'h':
		m.help, m.line = true, 0
	default:
		if k >= '1' && k <= '9' {
			m.chooseAt(int(k - '1'))
		}
	}
	m.page = max(0, min(scroll(m.page, k, pageRows), len(m.ranking.Pods)-1))
}

// scroll returns the first row to show after a key, if it scrolls, by pages of a number of rows. The caller
// limits it.
func scroll(row int, k key, page int) int {
	switch k {
	case keyPageUp:
		return row - page
	case keyPageDown, ' ':
		return row + page
	case keyHome:
		return 0
	case keyEnd:
		return math.MaxInt16
	}
	return row
}

// pressInHelp scrolls the help. Any other key ends it. The view limits how far it scrolls.
func (m *Model) pressInHelp(k key) {
	switch k {
	case keyUp, 'k':
		m.line--
	case keyDown, 'j':
		m.line++
	case keyPageUp, keyPageDown, ' ', keyHome, keyEnd:
		m.line = scroll(m.line, k, helpPage)
	default:
		m.help = false
	}
}

// helpPage is how many lines of the help Page Up and Page Down scroll: the lowest screens show as many.
const helpPage = 5

// pageRows is how many rows Page Up and Page Down scroll.
const pageRows = 10

// choose moves to the next or the previous signal and wraps around.
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

// chooseAt chooses the signal at a position on the screen.
func (m *Model) chooseAt(i int) {
	if shown := m.signals(); i < len(shown) && shown[i].Signal != m.chosen {
		m.chosen, m.page = shown[i].Signal, 0
		m.ranking, m.rankingAt, m.rankingErr = api.Ranking{}, time.Time{}, nil
	}
}
