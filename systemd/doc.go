// Package systemd speaks with the service manager and its journal, and holds
// what a package installs for them: the unit, the message catalog, the group and
// the directories.
//
// It owns the notifications (READY, STATUS, RELOADING, STOPPING, the watchdog),
// the journal's fields and the message IDs, one for each kind of event. Outside
// systemd it is quiet: a Notifier without NOTIFY_SOCKET sends nothing, and log
// lines go to standard error as text.
//
// It never forks, never starts a goroutine, never makes a temporary file, and
// never waits for a service manager or a journal that does not answer, but for
// bounds named with each call: a node that is out of memory, PIDs or disk is
// when both are slow and the guard may not be.
//
// It follows sd_notify(3), systemd.service(5), systemd.journal-fields(7) and
// https://systemd.io/JOURNAL_NATIVE_PROTOCOL.
package systemd
