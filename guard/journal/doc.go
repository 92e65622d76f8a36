// Package journal logs what the guard does. It logs changes of state, not every pass: a condition begins or
// ends, a stop begins or settles, criguard reclaims, or the reason that holds a stop back changes.
//
// It only formats passes. The fields that systemd's journal indexes are those of package systemd; see
// systemd.journal-fields(7).
package journal
