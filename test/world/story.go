package world

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/guard/api"
)

// story is what happened in a world: what the world did, and what the service logged.
type story struct {
	began  time.Time
	mu     sync.Mutex
	lines  []line
	wrong  []string         // the violations among them
	hidden []string         // pairs: what differs between two runs, and its replacement
	orders map[string]order // the last stops that the service logged, by pod's UID
	slept  atomic.Int64     // nanoseconds that the machine has slept
}

// order is a stop that a service logged.
type order struct {
	signal, kind string
	at           time.Duration // since the world began
	slept        time.Duration // what the machine had slept by then
}

// time is when it was, with what the machine had slept by then.
func (o order) time() time.Duration { return o.at + o.slept }

// pool returns the pool of the order's signal.
func (o order) pool() string {
	switch {
	case o.kind == api.KindLimit:
		return "limit"
	case strings.HasPrefix(o.signal, "pid"):
		return "tasks"
	case strings.HasPrefix(o.signal, "nodefs"), strings.HasPrefix(o.signal, "imagefs"), strings.HasPrefix(o.signal, "containerfs"):
		return "disk"
	default:
		return "memory"
	}
}

// stopLine is the line of a stop in a log.
var stopLine = regexp.MustCompile(`msg="stopping pod".* uid=(\S+) sandbox=\S+ signal=(\S+) kind=(\S+)`)

// runtimeLine is the line in a log that the runtime does not answer, or does again.
var runtimeLine = regexp.MustCompile(` event=runtime-(\S+)`)

// orderOf returns the last stop that a service logged for a pod.
func (s *story) orderOf(uid string) order {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders[uid]
}

// said returns what a service logged of the runtime last: up, down, or nothing yet.
func (s *story) said(from *service) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return from.runtime
}

type line struct {
	at   time.Duration
	text string
}

func newStory() *story { return &story{began: time.Now(), orders: map[string]order{}} }

// logf adds a line.
func (s *story) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line{time.Since(s.began), fmt.Sprintf(format, args...)})
}

// hide replaces what differs between two runs of the same world.
func (s *story) hide(text, by string) { s.hidden = append(s.hidden, text, by) }

// violate adds a violation of what must always hold.
func (s *story) violate(format string, args ...any) {
	s.logf("VIOLATION: "+format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// temporary is the random part of the name of a temporary file.
var temporary = regexp.MustCompile(`(\.[a-z-]+\.json)-[0-9]+`)

func (s *story) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The order of what happens at the same time is chance.
	slices.SortStableFunc(s.lines, func(a, b line) int { return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.text, b.text)) })
	var b strings.Builder
	for _, l := range s.lines {
		_, _ = fmt.Fprintf(&b, "%12.3fs  %s\n", l.at.Seconds(), l.text)
	}
	return temporary.ReplaceAllString(strings.NewReplacer(s.hidden...).Replace(b.String()), "$1")
}

// log returns a logger of a service that writes to the story, until it is killed.
func (s *story) log(from *service) *slog.Logger {
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey && a.Value.Any() == slog.LevelInfo {
			return slog.Attr{}
		}
		if a.Key == "reason" {
			// So is the order of the containers of a pod that the runtime failed to stop at the same time.
			const stop = "; stop container of "
			parts := strings.Split("; "+a.Value.String(), stop)
			slices.Sort(parts[1:])
			return slog.String(a.Key, strings.TrimPrefix(strings.Join(parts, stop), "; "))
		}
		return a
	}
	return slog.New(slog.NewTextHandler(logWriter{s, from}, &slog.HandlerOptions{ReplaceAttr: plain}))
}

type logWriter struct {
	*story
	from *service
}

var _ io.Writer = logWriter{}

// Write implements [io.Writer].
func (w logWriter) Write(b []byte) (int, error) {
	if !w.from.isCut() {
		if m := stopLine.FindSubmatch(b); m != nil {
			w.mu.Lock()
			w.orders[string(m[1])] = order{string(m[2]), string(m[3]), time.Since(w.began), time.Duration(w.slept.Load())}
			w.mu.Unlock()
		}
		w.logf("  criguard: %s", strings.TrimSpace(string(b)))
		if m := runtimeLine.FindSubmatch(b); m != nil {
			now := string(m[1])
			if w.said(w.from) == now {
				w.violate("the log says again that the runtime is %s", now)
			}
			w.mu.Lock()
			w.from.runtime = now
			w.mu.Unlock()
		}
	}
	return len(b), nil
}
