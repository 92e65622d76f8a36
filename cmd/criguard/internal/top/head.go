package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
)

// highHead is the minimum screen height, in rows, at which the head shows every notice.
const highHead = 16

// head shows the service, the runtime, the node's conditions and the notices.
func (v *view) head() []line {
	lines := []line{v.who()}
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
func (v *view) who() line {
	st := &v.status
	r := v.row()
	clock, style := v.now.Format("15:04:05"), plain
	if v.paused {
		clock, style = "VIEW PAUSED, "+age(v.now.Sub(v.statusAt))+" old", warn
	}
	room := r.left - len(clock) - 1
	if room < minWidth {
		room = r.left
	}
	r.left = room
	r.say(bold, "criguard "+st.Version).say(plain, ": ")
	switch {
	case v.lost != nil && st.Live:
		r.say(bad, fmt.Sprintf("SERVICE LOST %s ago; values %s old; trying again", age(v.now.Sub(v.lostAt)), age(v.now.Sub(v.statusAt))))
	case v.lost != nil:
		r.say(bad, "values "+age(v.now.Sub(v.statusAt))+" old; trying again")
	case !st.Live:
		r.say(warn, "no service runs; inspecting the node directly")
	default:
		r.say(plain, fmt.Sprintf("%s mode, pid %d, up %s", st.Mode, st.PID, age(time.Duration(st.Uptime))))
	}
	if room == v.width {
		return r.line
	}
	return r.skip(plain, r.left).widen(len(clock)+1).skip(plain, 1).say(style, clock).line
}

// widen returns columns to a row that was kept narrow.
func (r *row) widen(columns int) *row {
	r.left += columns
	return r
}

func (v *view) runtimeLine() line {
	rt := &v.status.Runtime
	r := v.row()
	switch {
	case rt.Up:
		r.say(plain, rt.Name+" "+rt.Version)
	case rt.Error != "":
		r.say(bad, rt.Error)
	default:
		r.say(bad, "no runtime answers")
	}
	if rt.ListedAt != nil {
		r.say(plain, fmt.Sprintf(", %s (%d protected) listed %s ago", api.Count(v.status.Pods, "pod"), v.status.Protected, age(time.Duration(*rt.ListedAt))))
	}
	return r.line
}

func (v *view) conditionsLine() line {
	st := &v.status
	r := v.row()
	if st.Conditions != 0 {
		r.say(bad, st.Conditions.String())
	} else {
		r.say(good, "no pressure")
	}
	if !st.Live {
		return r.line
	}
	b := &st.Budget
	r.say(plain, "   budget: hard ").bucket(b.Hard.Left, b.Hard.Burst, time.Duration(b.Hard.Next))
	r.say(plain, ", soft ").bucket(b.Soft.Left, b.Soft.Burst, time.Duration(b.Soft.Next))
	if b.PerHour > 0 { // hard and soft stops, in few words for a row of 80 columns
		r.say(plain, ", ").few(b.PerHour-b.Hard.LastHour).say(plain, " + ").few(b.PerHour-b.Soft.LastHour).say(plain, " this hour")
	}
	return r.line
}

// bucket adds the remaining budget and, when it is used up, the time until it refills.
func (r *row) bucket(left, of int, next time.Duration) {
	r.share(left, of)
	if left <= 0 && next > 0 {
		r.say(plain, " (in "+age(next)+")")
	}
}

// few writes how many stops are left.
func (r *row) few(n int) *row {
	if n <= 0 {
		return r.say(bad, "0")
	}
	return r.say(plain, fmt.Sprint(n))
}

func (r *row) share(left, of int) *row {
	style := plain
	if left <= 0 {
		style = bad
	}
	return r.say(style, fmt.Sprintf("%d of %d", left, of))
}

// notices returns everything unusual, most urgent first.
func (v *view) notices() []span {
	st := &v.status
	var all []span
	add := func(style style, word, text string) {
		all = append(all, span{strings.TrimSpace(word + " " + text), style})
	}
	for _, a := range st.Alarms {
		add(bad, "ALARM", a)
	}
	if p := st.Orders.Pause; p != nil {
		add(warn, "PAUSED", order(fmt.Sprintf("for another %s, by %s", age(time.Duration(st.PausedFor)), p.By), p.Reason))
	}
	if d := st.Orders.Drain; d != nil {
		add(warn, "DRAINED", order(fmt.Sprintf("until undrain, by %s", d.By), d.Reason))
	}
	for _, f := range st.InFlight {
		add(warn, "stopping", f)
	}
	if st.Held != "" {
		add(warn, "held back by "+api.Hold{Reason: st.Held, Detail: st.HeldDetail}.Why()+":", st.HeldBy)
	}
	for _, h := range st.AlsoHeld {
		add(warn, "held back by "+h.Why()+":", h.Threshold)
	}
	if v.lost != nil {
		add(bad, "", v.lost.Error())
	}
	if st.ConfigNote != "" {
		add(warn, "config", st.ConfigNote)
	}
	for _, w := range st.Warnings {
		add(warn, "warning", w)
	}
	return all
}

// order describes an operator's order and its reason.
func order(what, why string) string {
	if why != "" {
		what += ": " + why
	}
	return what
}
