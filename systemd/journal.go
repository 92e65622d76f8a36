package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
)

// JournalSocket is where the journal takes records in its native protocol.
const JournalSocket = "/run/systemd/journal/socket"

// identifier is what `journalctl -t` finds the records by.
const identifier = "criguard"

// journalPatience is how long a record may wait for a journal whose queue is
// full. Once one was lost, the next ones do not wait until one gets through.
const journalPatience = 10 * time.Millisecond

// JournalHandler is a slog.Handler that writes records to the journal with fields
// of their own: the attribute "pod" becomes CRIGUARD_POD, "x" in group "g"
// becomes CRIGUARD_G_X, the level PRIORITY, and the attribute EventKey MESSAGE_ID and
// CRIGUARD_EVENT. MESSAGE is the message with the attributes behind it, on
// one line, since journalctl shows no other field unless asked. Values beyond
// 8 KiB are cut, and fields beyond 64 KiB a record left out. The journal stamps the
// time itself.
//
// A record that the journal does not take is lost; the next one that it takes
// carries the count of the lost ones as CRIGUARD_DROPPED.
type JournalHandler struct {
	out   *journalOut
	level slog.Leveler
	group string // path of the open groups, each with a "." behind it
	with  entry  // what WithAttrs has added
}

// journalOut is what a handler shares with those derived from it.
type journalOut struct {
	mu      sync.Mutex
	socket  *datagrams
	dropped uint64 // since the last record that got through
}

// entry is the part of a record that attributes make.
type entry struct {
	event  Event
	fields []byte // native protocol
	text   []byte // for MESSAGE
}

// NewJournalHandler makes a handler that writes records of at least level to
// the journal listening at socket, usually JournalSocket.
func NewJournalHandler(socket string, level slog.Leveler) (*JournalHandler, error) {
	s, err := openDatagrams(socket)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &JournalHandler{out: &journalOut{socket: s}, level: level}, nil
}

// Close lets go of the socket, for all handlers derived from this one too.
func (h *JournalHandler) Close() error {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	return h.out.socket.close()
}

// Enabled says whether records of this level are written.
func (h *JournalHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// WithAttrs returns a handler that adds attrs to each record.
func (h *JournalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.with = h.with.clone()
	for _, a := range attrs {
		c.with.add(h.group, a)
	}
	return &c
}

// WithGroup returns a handler that puts later attributes into the group name.
func (h *JournalHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.group += name + "."
	return &c
}

// Handle writes one record.
func (h *JournalHandler) Handle(_ context.Context, r slog.Record) error {
	e := h.with.clone()
	r.Attrs(func(a slog.Attr) bool {
		e.add(h.group, a)
		return true
	})
	b := make([]byte, 0, len(e.fields)+len(e.text)+len(r.Message)+256)
	b = appendField(b, "PRIORITY", strconv.Itoa(int(priority(r.Level))))
	b = appendField(b, "SYSLOG_IDENTIFIER", identifier)
	b = appendField(b, "MESSAGE", r.Message+string(e.text))
	if id := e.event.MessageID(); id != "" {
		b = appendField(b, "MESSAGE_ID", id)
	}
	return h.out.write(append(b, e.fields...))
}

func (o *journalOut) write(b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	patience := journalPatience
	if o.dropped > 0 {
		patience = 0
		b = appendField(b, fieldPrefix+"DROPPED", strconv.FormatUint(o.dropped, 10))
	}
	if err := o.socket.send(b, patience); err != nil {
		o.dropped++
		return fmt.Errorf("write journal: %w", err)
	}
	o.dropped = 0
	return nil
}

func (e *entry) clone() entry {
	// Capped, so that two handlers derived from one do not write over each other.
	return entry{e.event, e.fields[:len(e.fields):len(e.fields)], e.text[:len(e.text):len(e.text)]}
}

// add takes up an attribute. group is the path of the groups around it.
func (e *entry) add(group string, a slog.Attr) {
	a.Value = a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return
	}
	if a.Value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range a.Value.Group() {
			e.add(group, inner)
		}
		return
	}
	key, value := group+a.Key, a.Value.String()
	if fields := appendField(e.fields, fieldName(key), value); len(fields) <= maxRecord {
		e.fields = fields
	}
	if key == EventKey {
		e.event = Event(value)
	} else if len(e.text) < maxValue {
		e.text = appendText(e.text, key, value)
	}
}

// priority is the syslog level of a record's level.
func priority(l slog.Level) journal.Priority {
	switch {
	case l < slog.LevelInfo:
		return journal.PriDebug
	case l < slog.LevelWarn:
		return journal.PriInfo
	case l < slog.LevelError:
		return journal.PriWarning
	default:
		return journal.PriErr
	}
}
