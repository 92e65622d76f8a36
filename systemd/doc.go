// Package systemd talks to the service manager and its journal. It also holds what a package installs
// for them: the unit, the message catalog, the group and the directories.
//
// It defines the notifications (READY, STATUS, RELOADING, STOPPING, the watchdog), the journal's fields
// and the message IDs, one per kind of event. Outside systemd it does nothing visible: a Notifier
// without NOTIFY_SOCKET sends nothing, and log lines are written to standard error as text.
//
// It never forks, and it creates no temporary files. Only the text log has a goroutine, which writes to
// standard error. It waits for a busy service manager or journal only up to a documented limit: both
// are slow when a node runs out of memory, PIDs or disk, and criguard must not be.
//
// It follows sd_notify(3), systemd.service(5), systemd.journal-fields(7) and
// https://systemd.io/JOURNAL_NATIVE_PROTOCOL.
package systemd
