package safetext

import (
	"context"
	"log/slog"
)

// handler escapes attribute values.
type handler struct{ slog.Handler }

// NewHandler returns a handler that passes records to h with all text in attribute values escaped
// like Escape does. Messages and keys come from the program itself and are not escaped.
func NewHandler(h slog.Handler) slog.Handler { return handler{h} }

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	safe := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		safe.AddAttrs(safeAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, safe)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(safeAttrs(attrs))}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

func safeAttrs(attrs []slog.Attr) []slog.Attr {
	safe := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		safe[i] = safeAttr(a)
	}
	return safe
}

func safeAttr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(safeAttrs(v.Group())...)}
	case slog.KindString, slog.KindAny:
		text := []byte(v.String())
		if safe := Escape(text); string(safe) != string(text) {
			return slog.String(a.Key, string(safe))
		}
	}
	return slog.Attr{Key: a.Key, Value: v}
}
