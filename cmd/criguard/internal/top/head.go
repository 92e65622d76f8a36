package top

import (
	"fmt"
	"strings"
	"time"
)

// highHead is the height from which on the head tells all that is going on.
const highHead = 16

// head tells who looks at what, and how it is.
func (v *view) head() []Line {
	lines := []Line{v.who()}
	if v.height >= highHead {
		lines = append(lines, v.runtimeLine())
	}
	if v.height >= 8 {
		lines = append(lines, v.conditionsLine())
	}
	room := 1 + (v.height-highHead)/8
	for _, n := range v.notices() {
		if room <= 0 {
			break
		}
		room--
		lines = append(lines, v.row().say(n.Style, n.Text).line)
	}
	return lines
}

// who is the first line: the program, the service and the time.
func (v *view) who() Line {
	st := &v.status
	r := v.row()
	clock, style := v.now.Format("15:04:05"), Plain
	if v.paused {
		clock, style = "VIEW PAUSED, "+age(v.now.Sub(v.statusAt))+" old", Warn
	}
	room := r.left - len(clock) - 1
	if room < minWidth {
		room = r.left
	}
	r.left = room
	r.say(Bold, "criguard "+st.Version).say(Plain, ": ")
	switch {
	case v.lost != nil && st.Live:
		r.say(Bad, fmt.Sprintf("SERVICE LOST %s ago; values %s old; trying again", age(v.now.Sub(v.lostAt)), age(v.now.Sub(v.statusAt))))
	case v.lost != nil:
		r.say(Bad, "values "+age(v.now.Sub(v.statusAt))+" old; trying again")
	case !st.Live:
		r.say(Warn, "no service runs; looking at the node directly")
	default:
		r.say(Plain, fmt.Sprintf("%s mode, pid %d, up %s", st.Mode, st.PID, age(st.Uptime)))
	}
	if room == v.width {
		return r.line
	}
	return r.skip(Plain, r.left).widen(len(clock)+1).skip(Plain, 1).say(style, clock).line
}

// widen gives a row that was kept narrow columns back.
func (r *row) widen(columns int) *row {
	r.left += columns
	return r
}

func (v *view) runtimeLine() Line {
	rt := &v.status.Runtime
	r := v.row()
	switch {
	case rt.Up:
		r.say(Plain, rt.Name+" "+rt.Version)
	case rt.Error != "":
		r.say(Bad, rt.Error)
	default:
		r.say(Bad, "no runtime answers")
	}
	if rt.ListedAt >= 0 {
		r.say(Plain, fmt.Sprintf(", %d pods (%d protected) listed %s ago", v.status.Pods, v.status.Protected, age(rt.ListedAt)))
	}
	return r.line
}

func (v *view) conditionsLine() Line {
	st := &v.status
	r := v.row()
	if len(st.Conditions) > 0 {
		r.say(Bad, strings.Join(st.Conditions, ", "))
	} else {
		r.say(Good, "no pressure")
	}
	if !st.Live {
		return r.line
	}
	b := &st.Budget
	r.say(Plain, "   budget: hard ").bucket(b.Hard.Left, b.Hard.Burst, b.Hard.Next)
	r.say(Plain, ", soft ").bucket(b.Soft.Left, b.Soft.Burst, b.Soft.Next)
	if b.PerHour > 0 {
		r.say(Plain, ", ").share(max(b.PerHour-b.LastHour, 0), b.PerHour).say(Plain, " this hour")
	}
	return r.line
}

// bucket adds what is left of a budget, and when there will be more.
func (r *row) bucket(left, of int, next time.Duration) {
	r.share(left, of)
	if left <= 0 && next > 0 {
		r.say(Plain, " (in "+age(next)+")")
	}
}

func (r *row) share(left, of int) *row {
	style := Plain
	if left <= 0 {
		style = Bad
	}
	return r.say(style, fmt.Sprintf("%d of %d", left, of))
}

// notices are what is out of the ordinary, the most urgent first.
func (v *view) notices() []Span {
	st := &v.status
	var all []Span
	add := func(style Style, word, text string) {
		all = append(all, Span{strings.TrimSpace(word + " " + text), style})
	}
	for _, a := range st.Alarms {
		add(Bad, "ALARM", a)
	}
	if p := st.Orders.Pause; p != nil {
		add(Warn, "PAUSED", order(fmt.Sprintf("for another %s, by uid %d", age(st.PausedFor), p.By.UID), p.Reason))
	}
	if d := st.Orders.Drain; d != nil {
		add(Warn, "DRAINED", order(fmt.Sprintf("until undrain, by uid %d", d.By.UID), d.Reason))
	}
	for _, f := range st.InFlight {
		add(Warn, "stopping", f)
	}
	if st.Held != "" {
		add(Warn, "held back by "+st.Held+":", st.HeldBy)
	}
	if v.lost != nil {
		add(Bad, "", v.lost.Error())
	}
	if st.ConfigNote != "" {
		add(Warn, "config", st.ConfigNote)
	}
	for _, w := range st.Warnings {
		add(Warn, "warning", w)
	}
	return all
}

// order is what someone has ordered, and why.
func order(what, why string) string {
	if why != "" {
		what += ": " + why
	}
	return what
}
