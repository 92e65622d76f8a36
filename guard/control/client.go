package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
	"github.com/criguard/criguard/policy"
)

// ErrNoService reports that no service answers on the control socket.
var ErrNoService = errors.New("no criguard service answers")

// ErrNoAnswer reports that the service got the request and did not answer: it ended meanwhile, or hangs.
var ErrNoAnswer = errors.New("the criguard service did not answer")

// ErrDenied reports that this user may not open the control socket.
var ErrDenied = errors.New("permission denied on the control socket (root or group criguard)")

// Client sends requests to a running service over its control socket.
type Client struct {
	http    *http.Client
	path    string
	pid     *atomic.Int64 // of the service that took the last connection; 0: unknown
	patient bool          // the answer may take minutes once it has begun
}

// NewClient returns a client for the service whose run directory is d.
func NewClient(d rundir.Dir) *Client {
	var dialer net.Dialer
	return NewClientOver(d, func(ctx context.Context, path string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", path)
	})
}

// NewClientOver is like NewClient, but dial connects to the socket with that path.
func NewClientOver(d rundir.Dir, dial func(ctx context.Context, path string) (net.Conn, error)) *Client {
	c := &Client{path: d.Socket(), pid: new(atomic.Int64)}
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := dial(ctx, c.path)
		if err == nil {
			peer, _ := peerOfConn(conn)
			c.pid.Store(int64(peer.PID))
		}
		return conn, err
	}
	c.http = &http.Client{Timeout: requestTimeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: connect}}
	return c
}

// Status returns the service's state, or ErrNoService if no service runs.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	return get[api.Status](ctx, c, "/v1/status", nil)
}

// Rank returns the ranking for a signal, or ErrNoService if no service runs.
func (c *Client) Rank(ctx context.Context, s policy.Signal) (api.Ranking, error) {
	return get[api.Ranking](ctx, c, "/v1/rank", url.Values{"signal": {s.String()}})
}

// History returns the newest n passes, oldest first; all for n < 1. It returns ErrNoService if no service
// runs.
func (c *Client) History(ctx context.Context, n int) ([]api.Pass, error) {
	l, err := c.Passes(ctx, api.HistoryQuery{N: max(n, 0)})
	return l.Passes, err
}

// Passes returns the selected passes, oldest first, or ErrNoService if no service runs. It leaves out a pass that
// another version recorded and that this one cannot read, such as one with a signal that this one does not know.
func (c *Client) Passes(ctx context.Context, q api.HistoryQuery) (api.HistoryList, error) {
	answer, err := get[struct {
		api.HistoryList
		Passes []json.RawMessage `json:"passes"`
	}](ctx, c, "/v1/history", historyValues(q))
	list := answer.HistoryList
	list.Passes = make([]api.Pass, 0, len(answer.Passes))
	for _, text := range answer.Passes {
		var p api.Pass
		if json.Unmarshal(text, &p) == nil {
			list.Passes = append(list.Passes, p)
		}
	}
	if all := len(answer.Passes); len(list.Passes) < all && list.Note == "" {
		list.Note = fmt.Sprintf("%d of %d passes left out: recorded by another version of criguard", all-len(list.Passes), all)
	}
	return list, err
}

// Samples returns the signals of the last period of this length; all stored samples for 0. It returns
// ErrNoService if no service runs.
func (c *Client) Samples(ctx context.Context, last time.Duration) (api.SampleList, error) {
	query := url.Values{}
	if last > 0 {
		query.Set("last", last.String())
	}
	return get[api.SampleList](ctx, c, "/v1/samples", query)
}

// Windows returns the signals around the last stops, oldest first, or ErrNoService if no service runs.
func (c *Client) Windows(ctx context.Context) ([]api.Window, error) {
	l, err := get[api.WindowList](ctx, c, "/v1/windows", nil)
	return l.Windows, err
}

// Settings returns the configuration in force, or ErrNoService if no service runs.
func (c *Client) Settings(ctx context.Context) (api.Settings, error) {
	return get[api.Settings](ctx, c, "/v1/config", nil)
}

// Drain returns the progress of a drain, or ErrNoService if no service runs.
func (c *Client) Drain(ctx context.Context) (api.DrainPlan, error) {
	return get[api.DrainPlan](ctx, c, "/v1/drain", nil)
}

// remoteError is an error that the service returned.
type remoteError struct {
	text string
	is   error // the matching sentinel error; nil = none
}

func (e remoteError) Error() string { return e.text }
func (e remoteError) Unwrap() error { return e.is }

// Command executes a command. It returns ErrNoService if no service runs, and api.ErrRefused if the
// service's state does not allow the command.
func (c *Client) Command(ctx context.Context, cmd api.Command) (api.CommandAnswer, error) {
	body, err := json.Marshal(cmd)
	if err != nil {
		return api.CommandAnswer{}, fmt.Errorf("ask service: %w", err)
	}
	return ask[api.CommandAnswer](ctx, c, http.MethodPost, url.URL{Path: "/v1/command"}, bytes.NewReader(body))
}

// Metrics writes criguard's own metrics in Prometheus' text format. It returns ErrNoService if no service
// runs.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	answer, err := c.send(ctx, http.MethodGet, url.URL{Path: "/v1/metrics"}, http.NoBody)
	if err != nil {
		return err
	}
	if _, err := w.Write(answer); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// maxAnswer limits how many bytes of an answer a client reads. The longest is a history of 10,000 passes, each with ten pods of
// its ranking and perhaps what it removed.
const maxAnswer = 256 << 20

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	return ask[T](ctx, c, http.MethodGet, url.URL{Path: path, RawQuery: query.Encode()}, http.NoBody)
}

// ask sends a request and decodes the answer.
func ask[T any](ctx context.Context, c *Client, method string, u url.URL, body io.Reader) (v T, err error) {
	answer, err := c.send(ctx, method, u, body)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(answer, &v); err != nil {
		return v, fmt.Errorf("read answer of service on %s: %w", c.path, err)
	}
	return v, nil
}

// send returns the body of a successful answer.
func (c *Client) send(ctx context.Context, method string, u url.URL, body io.Reader) (data []byte, err error) {
	err = c.exchange(ctx, method, u, body, func(answer io.Reader) error {
		if data, err = io.ReadAll(io.LimitReader(answer, maxAnswer)); err != nil {
			return c.unanswered(ctx, err)
		}
		return nil
	})
	return data, err
}

// exchange sends a request and lets read consume the body of a successful answer.
func (c *Client) exchange(ctx context.Context, method string, u url.URL, body io.Reader, read func(io.Reader) error) error {
	u.Scheme, u.Host = "http", "criguard"
	asked := ctx
	if c.patient {
		var end func()
		asked, end = begun(ctx)
		defer end()
	}
	req, err := http.NewRequestWithContext(asked, method, u.String(), body)
	if err != nil {
		return fmt.Errorf("ask service: %w", err)
	}
	if c.patient {
		req.Header.Set(patientHeader, "1")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			is := ErrNoService
			if errors.Is(op.Err, fs.ErrPermission) {
				is = ErrDenied
			}
			return fmt.Errorf("ask service on %s: %w: %w", c.path, is, op.Err)
		}
		return c.unanswered(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return read(resp.Body)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return c.unanswered(ctx, err)
	}
	var e api.Error
	if json.Unmarshal(data, &e) != nil || e.Error == "" {
		e.Error = resp.Status
	}
	answer := remoteError{text: e.Error}
	switch resp.StatusCode {
	case http.StatusBadGateway:
		answer.is = cri.ErrNoRuntime
	case http.StatusConflict:
		answer.is = api.ErrRefused
	}
	return answer // how it was asked is no part of why it refuses
}

// unanswered returns the error of a request that the service did not answer. It is ErrNoAnswer unless the
// caller gave up.
func (c *Client) unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask service on %s: %w", c.path, err)
	}
	who := ""
	if pid := c.pid.Load(); pid != 0 {
		who = fmt.Sprintf(" (pid %d)", pid)
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err // its URL says nothing: the socket is known
		if request.Timeout() {
			err = fmt.Errorf("%w after %s", errTimedOut, requestTimeout)
		}
	}
	return fmt.Errorf("ask service on %s: %w%s: %w", c.path, ErrNoAnswer, who, err)
}

// errTimedOut reports that a service hangs: it took the request and was silent.
var errTimedOut = errors.New("timed out")
