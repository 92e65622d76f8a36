package agenttest

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Answers of an honest agent to a request for a permit.
const (
	Pending = `{"state":"pending"}`
	Denied  = `{"state":"denied","reason":"zone z1 is partial: 0/s","retry_after":"34s"}`
)

// State is the answer of an honest agent to everything else.
const State = `{"wants":[],"requests":[]}`

// most is the longest time.Duration.
const most = "2562047h47m16s"

// Handle is an agent that handles requests.
func Handle(handler http.Handler) func(net.Conn) {
	return func(conn net.Conn) {
		l := &oneConn{conn: conn, closed: make(chan struct{})}
		s := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), Handler: handler, ConnState: func(_ net.Conn, st http.ConnState) {
			if st == http.StateClosed || st == http.StateHijacked {
				l.close()
			}
		}}
		_ = s.Serve(l)
	}
}

// Answer is an agent that answers requests for a permit with this, and everything else honestly.
func Answer(permit func() string) func(net.Conn) {
	return Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !AsksPermit(r.Method, r.URL.Path) {
			_, _ = io.WriteString(w, State)
			return
		}
		_, _ = io.WriteString(w, permit())
	}))
}

// AsksPermit reports whether a request is one for a permit.
func AsksPermit(method, path string) bool {
	return method == http.MethodPut && strings.HasPrefix(path, "/v1/permits/")
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *oneConn) Accept() (c net.Conn, err error) {
	if c, l.conn = l.conn, nil; c != nil {
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) close()         { l.once.Do(func() { close(l.closed) }) }
func (l *oneConn) Close() error   { l.close(); return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "agent", Net: "unix"} }

// raw is an agent that reads a request and writes bytes, again and again if they are endless.
func raw(head, endless string, pause time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		b := make([]byte, 4096)
		if _, err := c.Read(b); err != nil {
			return
		}
		_, err := io.WriteString(c, head)
		for err == nil && endless != "" {
			time.Sleep(pause)
			_, err = io.WriteString(c, endless)
		}
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

// Hangs returns agents that never answer, by name.
func Hangs() map[string]func(net.Conn) {
	return map[string]func(net.Conn){
		"reads":         func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"does not read": func(net.Conn) { time.Sleep(time.Hour) },
	}
}

// Floods returns agents whose answers have no end, by name.
func Floods() map[string]func(net.Conn) {
	return map[string]func(net.Conn){
		"endless header":   raw(ok, "X-A: "+strings.Repeat("a", 1000)+"\r\n", 0),
		"long header line": raw(ok+"X-A: ", strings.Repeat("a", 1000), 0),
		"early hints":      raw("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 0),
		"endless body":     raw(ok+"\r\n", strings.Repeat(" ", 1000), 0),
		"slow body":        raw(ok+"\r\n{", " ", 100*time.Millisecond),
		"megabytes": Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"state":"granted","deadline":"9000h","reason":"`+strings.Repeat("a", 1<<20)+`"}`)
		})),
	}
}

// Failures returns agents that end without a valid answer, by name.
func Failures() map[string]func(net.Conn) {
	const granted = `{"state":"granted","deadline":"` + most + `"}`
	status := func(code int) func(net.Conn) {
		return Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://192.0.2.1/v1/permits/memory/u1")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, granted)
		}))
	}
	text := func(answer string) func(net.Conn) {
		return Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	}
	return map[string]func(net.Conn){
		"closes":  func(net.Conn) {},
		"no HTTP": raw("hello\r\n\r\n", "", 0),
		"compressed": Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "\x1f\x8b\x08\x00")
		})),
		"cut":                raw(ok+"Content-Length: 100\r\n\r\n{}", "", 0),
		"redirect":           status(http.StatusTemporaryRedirect),
		"permanent redirect": status(http.StatusMovedPermanently),
		"bad request":        status(http.StatusBadRequest),
		"created":            status(http.StatusCreated),
		"unavailable":        status(http.StatusServiceUnavailable),
		"no JSON":            text("not JSON"),
		"no object":          Answer(func() string { return "yes" }),
		"empty":              text(""),
		"empty object":       text("{}"),
	}
}

// Grants returns answers that permit a stop for a time that cannot be, by name.
func Grants() map[string]string {
	return map[string]string{
		"permit for ever":           `{"state":"granted","deadline":"` + most + `"}`,
		"permit in the past":        `{"state":"granted","deadline":"1s"}`,
		"permit before the boot":    `{"state":"granted","deadline":"-` + most + `"}`,
		"permit without a deadline": `{"state":"granted"}`,
	}
}

// Denials returns answers that deny a stop with absurd details, by name.
func Denials() map[string]string {
	escapes, _ := json.Marshal("\x1b[2J\u202e" + strings.Repeat("ä", 9000))
	return map[string]string{
		"denied for ever":         `{"state":"denied","retry_after":"` + most + `"}`,
		"denied, asked again now": `{"state":"denied","retry_after":"-` + most + `"}`,
		"escapes":                 `{"state":"denied","reason":` + string(escapes) + `,"retry_after":"30s"}`,
		"unknown fields":          `{"state":"denied","retry_after":"30s","kill":"all"}`,
	}
}
