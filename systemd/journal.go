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

// journalSocket is the socket where the journal accepts records in its native protocol.
const journalSocket = "/run/systemd/journal/socket"

// identifier is the name by which `journalctl -t` selects the records.
const identifier = "criguard"

// journalPatience is how long a record may wait while the journal's queue is full. After a record was
// lost, further ones do not wait until one is delivered.
const journalPatience = 10 * time.Millisecond

// journalHandler is a slog.Handler that writes records with native fields to the journal: the attribute
// "pod" becomes CRIGUARD_POD, "x" in group "g" becomes CRIGUARD_G_X, the level becomes PRIORITY, and
// the attribute EventKey becomes MESSAGE_ID and CRIGUARD_EVENT. MESSAGE is the message followed by the
// attributes, because journalctl shows no other field by default. Values are cut at 8 KiB. A field that
// would make the record larger than 64 KiB is left out. The journal adds the time itself.
//
// If the journal does not accept a record, the record is lost. The next one that it accepts carries the
// number of lost records as CRIGUARD_DROPPED.
type journalHandler struct {
	out   *journalOut
	level slog.Leveler
	group string // path of the open groups, each followed by a "."
	with  entry  // the attributes of WithAttrs
}

// journalOut is the state shared by a handler and those derived from it.
type journalOut struct {
	mu      sync.Mutex
	socket  *datagrams
	dropped uint64 // since the last delivered record
}

// entry is the part of a record that comes from attributes.
type entry struct {
	event  Event
	fields []byte // native protocol
	text   []byte // for MESSAGE
}

// newJournalHandler returns a handler that writes records of at least level to the journal that listens
// at socket, usually journalSocket.
func newJournalHandler(socket string, level slog.Leveler) (*journalHandler, error) {
	s, err := openDatagrams(socket)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &journalHandler{out: &journalOut{socket: s}, level: level}, nil
}

// Close closes the socket, also for all handlers derived from this one.
func (h *journalHandler) Close() error {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	return h.out.socket.close()
}

// Enabled reports whether records of this level are written.
func (h *journalHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// WithAttrs returns a handler that adds attrs to each record.
func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.with = h.with.clone()
	for _, a := range attrs {
		c.with.add(h.group, a)
	}
	return &c
}

// WithGroup returns a handler that adds later attributes to the group name.
func (h *journalHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.group += name + "."
	return &c
}

// Handle writes one record.
func (h *journalHandler) Handle(_ context.Context, r slog.Record) error {
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
	// The capacity is limited, so that two handlers derived from one do not overwrite each other's
	// bytes.
	return entry{e.event, e.fields[:len(e.fields):len(e.fields)], e.text[:len(e.text):len(e.text)]}
}

// add adds an attribute. group is the path of the groups around it.
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

// priority returns the syslog level of a record's level.
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
