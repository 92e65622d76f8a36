package top

import "time"

// view is one drawing of a model.
type view struct {
	*Model
	glyphs
	width, height int
	now           time.Time
}

// The smallest screen that something can be shown on.
const (
	minWidth  = 20
	minHeight = 4
)

// View draws the model for a screen: at most height lines, none wider than width columns.
func (m *Model) View(width, height int, now time.Time) []Line {
	v := &view{Model: m, glyphs: glyphsFor(m.options.ASCII), width: width, height: height, now: now}
	if width < minWidth || height < minHeight {
		return []Line{v.row().say(Plain, "too small").line}[:max(0, min(height, 1))]
	}
	lines := v.head()
	body := height - len(lines) - 1
	if m.help {
		lines = append(lines, v.manual(body)...)
	} else {
		rows := v.divide(body - 2*v.gap())
		lines = append(lines, v.signalTable(rows.signals)...)
		lines = append(lines, make([]Line, v.gap())...)
		lines = append(lines, v.podTable(rows.pods)...)
		lines = append(lines, make([]Line, v.gap())...)
		lines = append(lines, v.eventTable(rows.events)...)
	}
	for len(lines) < height-1 {
		lines = append(lines, nil)
	}
	return append(lines, v.foot())
}

// gap is how many blank lines are between two tables.
func (v *view) gap() int {
	if v.height >= 30 {
		return 1
	}
	return 0
}

// parts are the rows that each table gets, its title with it.
type parts struct{ signals, pods, events int }

// fewPods is how many rows the pods get at least while signals want more: title, head and three
// pods.
const fewPods = 5

// divide shares the rows out: each table gets its part at least, and what one does not need is
// for the others. A low screen shows no events, and a very low one signals alone.
func (v *view) divide(rows int) parts {
	want := parts{1 + len(v.signals()), 2 + max(1, len(v.ranking.Pods)), 1 + max(1, len(v.events))}
	var p parts
	if rows >= 12 {
		p.events = min(want.events, max(2, rows/5))
	}
	rest := rows - p.events
	p.signals = min(want.signals, rest)
	if rows >= 6 {
		p.signals = min(want.signals, max(rest-fewPods, rest/2))
		p.pods = min(want.pods, rest-p.signals)
	}
	p.signals = min(want.signals, rest-p.pods)
	if p.events > 0 {
		p.events = min(want.events, rows-p.signals-p.pods)
	}
	return p
}

// foot tells the keys, the most needed first.
func (v *view) foot() Line {
	r := v.row()
	for _, k := range []struct{ key, what string }{
		{"q", "quit"}, {"?", "help"}, {v.arrows, "signal"}, {"p", v.pauseKey()}, {"PgDn", "more pods"}, {"1-9", "choose signal"},
	} {
		if r.left < len(k.key)+len(k.what)+3 {
			break
		}
		r.say(Bold, k.key).say(Plain, " "+k.what+"   ")
	}
	return r.line
}

func (v *view) pauseKey() string {
	if v.paused {
		return "go on"
	}
	return "pause"
}

// manual is the help.
func (v *view) manual(rows int) []Line {
	lines := []Line{v.title("HELP")}
	for _, l := range []struct{ key, what string }{
		{v.arrows + ", tab", "choose the signal that pods are ranked for"},
		{"1-9", "choose it by its number"},
		{"PgUp PgDn", "scroll the pods; Home and End"},
		{"p", "pause, and go on"},
		{"q, ctrl-c", "quit"},
		{"", ""},
		{v.full + v.full + v.empty + v.empty, "how much of the signal's capacity is available"},
		{v.hard, "the hard threshold: below it, a pod is stopped at once"},
		{v.soft, "the soft threshold: below it for its grace period, a pod is stopped"},
		{"TREND", "the change per second over the last 10 s or so"},
		{"", ""},
		{"", "The pod at the top is stopped first; one without a number never is."},
		{"", "criguard(1) tells more. Any key goes back."},
	} {
		lines = append(lines, v.row().skip(Plain, 2).cell(Bold, 11, l.key).say(Plain, l.what).line)
	}
	return lines[:max(0, min(len(lines), rows))]
}

// title is a bar across the screen with text.
func (v *view) title(text string) Line {
	r := v.row().say(Title, text)
	return r.skip(Title, r.left).line
}
