package top

// eventTable shows so many rows of what the guard did last, the newest first.
func (v *view) eventTable(rows int) []Line {
	if rows < 1 {
		return nil
	}
	lines := []Line{v.title("LAST PASSES that did something")}
	if len(v.events) == 0 {
		text := "nothing has happened yet"
		if !v.status.Live {
			text = "known to the service alone"
		}
		return append(lines, v.row().say(Dim, text).line)[:min(rows, 2)]
	}
	for i := len(v.events) - 1; i >= 0 && len(lines) < rows; i-- {
		e := &v.events[i]
		r := v.row().cell(Dim, len("15:04:05"), e.At.Format("15:04:05"))
		r.cell(Plain, max(16, (v.width-9)/2), e.What)
		lines = append(lines, r.say(Dim, e.Why).line)
	}
	return lines
}
