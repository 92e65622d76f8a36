package systemd

import (
	"log/slog"
	"os"

	"github.com/coreos/go-systemd/v22/journal"
)

// NewHandler returns the handler for a program's log, for records of at least level. If standard error
// is the journal (JOURNAL_STREAM names its device and inode), the handler writes native fields there,
// else text to standard error. Neither blocks for long on a slow reader. Call flush before the program
// ends.
func NewHandler(level slog.Leveler) (h slog.Handler, flush func()) {
	return newHandler(journalSocket, level)
}

func newHandler(socket string, level slog.Leveler) (h slog.Handler, flush func()) {
	// If JOURNAL_STREAM is malformed, log text to standard error, which still reaches its destination.
	if direct, err := journal.StderrIsJournalStream(); err == nil && direct {
		if h, err := newJournalHandler(socket, level); err == nil {
			return h, func() {} // nothing to flush: a datagram arrives once it is sent
		}
	}
	q := newQueue(os.Stderr) //nolint:forbidigo // log records are made safe before they get here
	return slog.NewTextHandler(q, &slog.HandlerOptions{Level: level}), q.flush
}
