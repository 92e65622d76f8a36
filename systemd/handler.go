package systemd

import (
	"log/slog"
	"os"

	"github.com/coreos/go-systemd/v22/journal"
)

// NewHandler is the handler for a program's log, for records of at least level:
// the journal with native fields where standard error leads there (JOURNAL_STREAM
// names its device and inode), and text on standard error otherwise.
func NewHandler(level slog.Leveler) slog.Handler {
	return newHandler(JournalSocket, level)
}

func newHandler(socket string, level slog.Leveler) slog.Handler {
	// A JOURNAL_STREAM that cannot be read is no reason to stay silent: what is
	// written to standard error as text arrives wherever that leads.
	if direct, err := journal.StderrIsJournalStream(); err == nil && direct {
		if h, err := NewJournalHandler(socket, level); err == nil {
			return h
		}
	}
	return slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})
}
