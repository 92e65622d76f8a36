package top

import (
	"fmt"
	"strings"
	"time"
)

// view draws a model once.
type view struct {
	*Model
	glyphs
	width, height int
	now           time.Time
}

// The smallest usable screen.
const (
	minWidth  = 20
	minHeight = 4
)

// view draws the model for a screen: at most height lines, each at most width columns wide.
func (m *Model) view(width, height int, now time.Time) []line {
	v := &view{Model: m, glyphs: glyphsFor(m.options.ASCII), width: width, height: height, now: now}
	if width < minWidth || height < minHeight {
		return []line{v.row().say(plain, "too small").line}[:max(0, min(height, 1))]
	}
	lines := v.head()
	body := height - len(lines) - 1
	if m.help {
		lines = append(lines, v.manual(body)...)
	} else {
		rows := v.divide(body - 2*v.gap())
		lines = append(lines, v.signalTable(rows.signals)...)
		lines = append(lines, make([]line, v.gap())...)
		lines = append(lines, v.podTable(rows.pods)...)
		lines = append(lines, make([]line, v.gap())...)
		lines = append(lines, v.eventTable(rows.events)...)
	}
	for len(lines) < height-1 {
		lines = append(lines, nil)
	}
	return append(lines, v.foot())
}

// gap returns the number of blank lines between two tables.
func (v *view) gap() int {
	if v.height >= 30 {
		return 1
	}
	return 0
}

// parts are the rows of each table, title included.
type parts struct{ signals, pods, events int }

// fewPods is the minimum number of rows for pods while signals need more: title, header and three
// pods.
const fewPods = 5

// divide distributes the rows. Each table gets at least its share, and rows that one table does not
// need are given to the others. A low screen shows no events, and a very low one only signals.
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

// foot lists the keys, most important first.
func (v *view) foot() line {
	r := v.row()
	keys := []struct{ key, what string }{
		{"q", "quit"}, {"?", "help"}, {v.arrows, "signal"}, {"p", v.pauseKey()}, {"PgDn", "more pods"}, {"1-9", "choose signal"},
	}
	if v.help {
		keys = keys[:1]
		keys = append(keys, struct{ key, what string }{v.arrows, "scroll"}, struct{ key, what string }{"other", "back"})
	}
	for _, k := range keys {
		if r.left < len(k.key)+len(k.what)+3 {
			break
		}
		r.say(bold, k.key).say(plain, " "+k.what+"   ")
	}
	return r.line
}

func (v *view) pauseKey() string {
	if v.paused {
		return "go on"
	}
	return "pause"
}

// manual is the help screen, from the line on to which it is scrolled.
func (v *view) manual(rows int) []line {
	var lines []line
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
		{"TREND", "the change per second over the last 10 s or so, of disks 5 min"},
		{"over_by", "usage above the pod's request; negative if it uses less"},
		{"", ""},
		{"", "The pod at the top is stopped first; one without a number never is."},
		{"", "See criguard(1) for more."},
	} {
		for i, part := range wrap(l.what, v.width-helpIndent) {
			if i > 0 {
				l.key = ""
			}
			lines = append(lines, v.row().skip(plain, 2).cell(bold, helpIndent-3, l.key).say(plain, part).line)
		}
	}
	v.line = max(0, min(v.line, len(lines)-(rows-1)))
	text := "HELP"
	if rows-1 < len(lines) {
		text = fmt.Sprintf("HELP, lines %d to %d of %d", v.line+1, min(v.line+rows-1, len(lines)), len(lines))
	}
	lines = append([]line{v.title(text)}, lines[v.line:]...)
	return lines[:max(0, min(len(lines), rows))]
}

// helpIndent is the width of the help's keys.
const helpIndent = 14

// wrap splits text of one column per character at blanks into lines of at most width columns. A longer word
// stays whole.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// title is a full-width bar with text.
func (v *view) title(text string) line {
	r := v.row().say(title, text)
	return r.skip(title, r.left).line
}
