package top

// eventTable shows criguard's last actions, newest first, in the given number of rows.
func (v *view) eventTable(rows int) []line {
	if rows < 1 {
		return nil
	}
	lines := []line{v.title("LAST PASSES that did something")}
	if len(v.events) == 0 {
		text := "nothing has happened yet"
		if !v.status.Live {
			text = "only the service records passes"
		}
		return append(lines, v.row().say(dim, text).line)[:min(rows, 2)]
	}
	for i := len(v.events) - 1; i >= 0 && len(lines) < rows; i-- {
		e := &v.events[i]
		r := v.row().cell(dim, len("15:04:05"), e.At.Format("15:04:05"))
		r.cell(plain, max(16, (v.width-9)/2), e.What)
		lines = append(lines, r.say(dim, e.Why).line)
	}
	return lines
}
