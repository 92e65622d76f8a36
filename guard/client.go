package guard

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
	"strconv"
	"time"

	"github.com/criguard/criguard/policy"
)

// ErrNoService says that no service answers on the control socket.
var ErrNoService = errors.New("no criguard service answers")

// ErrNoAnswer says that a service was asked and has not answered: it has ended meanwhile, or
// is stuck.
var ErrNoAnswer = errors.New("the criguard service has not answered")

// ErrDenied says that this user may not ask the service.
var ErrDenied = errors.New("the control socket is closed to this user")

// Client asks a running service over its control socket.
type Client struct {
	http *http.Client
	path string
}

// NewClient returns a client for the service that runs from d.
func NewClient(d RunDir) *Client {
	path := d.Socket()
	var dialer net.Dialer
	return &Client{path: path, http: &http.Client{
		Timeout: controlTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", path)
			},
		},
	}}
}

// Status asks for the state. ErrNoService without a service.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.get(ctx, "/v1/status", nil, &s)
}

// Rank asks for a ranking. ErrNoService without a service.
func (c *Client) Rank(ctx context.Context, s policy.Signal) (Ranking, error) {
	var r Ranking
	return r, c.get(ctx, "/v1/rank", url.Values{"signal": {s.String()}}, &r)
}

// History asks for the newest n passes, oldest first; all for n < 1.
// ErrNoService without a service.
func (c *Client) History(ctx context.Context, n int) ([]Pass, error) {
	var l HistoryList
	return l.Passes, c.get(ctx, "/v1/history", url.Values{"n": {strconv.Itoa(n)}}, &l)
}

// Samples asks for the signals of so long before now; all that are kept for 0.
// ErrNoService without a service.
func (c *Client) Samples(ctx context.Context, last time.Duration) (SampleList, error) {
	query := url.Values{}
	if last > 0 {
		query.Set("last", last.String())
	}
	var l SampleList
	return l, c.get(ctx, "/v1/samples", query, &l)
}

// Windows asks for the signals around the last stops, oldest first. ErrNoService
// without a service.
func (c *Client) Windows(ctx context.Context) ([]Window, error) {
	var l WindowList
	err := c.get(ctx, "/v1/windows", nil, &l)
	return l.Windows, err
}

// Settings asks for the configuration in force. ErrNoService without a service.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	var s Settings
	return s, c.get(ctx, "/v1/config", nil, &s)
}

// remoteError is an error of the service's.
type remoteError struct {
	text string
	is   error // the sentinel it stands for; nil = none
}

func (e remoteError) Error() string { return e.text }
func (e remoteError) Unwrap() error { return e.is }

// Command asks for something to be done. ErrNoService without a service,
// ErrRefused where its state does not allow it.
func (c *Client) Command(ctx context.Context, cmd Command) (CommandAnswer, error) {
	var a CommandAnswer
	body, err := json.Marshal(cmd)
	if err != nil {
		return a, fmt.Errorf("ask service: %w", err)
	}
	return a, c.ask(ctx, http.MethodPost, url.URL{Path: "/v1/command"}, bytes.NewReader(body), &a)
}

// Drain asks how far a drain is. ErrNoService without a service.
func (c *Client) Drain(ctx context.Context) (DrainPlan, error) {
	var p DrainPlan
	return p, c.get(ctx, "/v1/drain", nil, &p)
}

// Metrics writes criguard's own metrics, as Prometheus reads them. ErrNoService
// without a service.
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

// maxAnswer bounds what a client reads.
const maxAnswer = 64 << 20

func (c *Client) get(ctx context.Context, path string, query url.Values, into any) error {
	return c.ask(ctx, http.MethodGet, url.URL{Path: path, RawQuery: query.Encode()}, http.NoBody, into)
}

func (c *Client) ask(ctx context.Context, method string, u url.URL, body io.Reader, into any) error {
	answer, err := c.send(ctx, method, u, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("read answer of service on %s: %w", c.path, err)
	}
	return nil
}

// send returns the body of an answer that tells of no error.
func (c *Client) send(ctx context.Context, method string, u url.URL, body io.Reader) ([]byte, error) {
	u.Scheme, u.Host = "http", "criguard"
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("ask service: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			is := ErrNoService
			if errors.Is(op.Err, fs.ErrPermission) {
				is = ErrDenied
			}
			return nil, fmt.Errorf("ask service on %s: %w: %w", c.path, is, op.Err)
		}
		return nil, c.unanswered(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, c.unanswered(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return data, nil
	}
	var e apiError
	if json.Unmarshal(data, &e) != nil || e.Error == "" {
		e.Error = resp.Status
	}
	answer := remoteError{text: e.Error}
	switch resp.StatusCode {
	case http.StatusBadGateway:
		answer.is = ErrNoRuntime
	case http.StatusConflict:
		answer.is = ErrRefused
	}
	return nil, fmt.Errorf("ask service on %s: %w", c.path, answer)
}

// unanswered is the error of a service that was reached, unless it is the asker who gave up.
func (c *Client) unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask service on %s: %w", c.path, err)
	}
	return fmt.Errorf("ask service on %s: %w: %w", c.path, ErrNoAnswer, err)
}
