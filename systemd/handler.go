package systemd

import (
	"log/slog"
	"os"

	"github.com/coreos/go-systemd/v22/journal"
)

// NewHandler is the handler for a program's log, for records of at least level:
// the journal with native fields where standard error leads there (JOURNAL_STREAM
// names its device and inode), and text on standard error otherwise. Neither waits for
// long for who reads it. Call flush at the program's end.
func NewHandler(level slog.Leveler) (h slog.Handler, flush func()) {
	return newHandler(JournalSocket, level)
}

func newHandler(socket string, level slog.Leveler) (h slog.Handler, flush func()) {
	// A JOURNAL_STREAM that cannot be read is no reason to stay silent: what is
	// written to standard error as text arrives wherever that leads.
	if direct, err := journal.StderrIsJournalStream(); err == nil && direct {
		if h, err := NewJournalHandler(socket, level); err == nil {
			return h, func() {} // a datagram is there once it is sent
		}
	}
	q := newQueue(os.Stderr)
	return slog.NewTextHandler(q, &slog.HandlerOptions{Level: level}), q.flush
}
