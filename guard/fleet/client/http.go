package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/safetext"
)

// Limits of an answer.
const (
	timeout   = time.Second
	maxHeader = 8 << 10
	maxBody   = 32 << 10
	maxReason = 200           // bytes
	maxPermit = time.Minute   // a permit is used by the next pass
	maxRetry  = 2 * time.Hour // longer than the first token of a trickle takes
	maxPaused = 7 * 24 * time.Hour
)

// Longest texts of a request that the agent accepts, in bytes.
const (
	maxSandbox  = 128
	maxWorkload = 512
)

// newHTTP returns an HTTP client that connects to a unix socket, whatever the URL.
func newHTTP(path string) *http.Client {
	var d net.Dialer
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) },
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		},
	}
}

// path returns the path of a request for a pod.
func (t target) path() []string { return []string{"v1", "permits", t.pool.String(), t.sandbox} }

// send makes a round trip and returns the body of a successful answer, which is JSON.
func (c *Client) send(ctx context.Context, method string, path []string, body any) ([]byte, error) {
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	u := (&url.URL{Scheme: "http", Host: "agent"}).JoinPath(path...)
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("ask agent: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("ask agent: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // its URL names no real host
		}
		return nil, fmt.Errorf("ask agent: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer: %w", err)
	case resp.StatusCode != http.StatusOK:
		var e api.Error
		_ = json.Unmarshal(answer, &e) // the status is enough
		return nil, fmt.Errorf("read answer: status %d %s", resp.StatusCode, short(e.Error))
	case len(answer) > maxBody:
		return nil, fmt.Errorf("read answer: longer than %d bytes", maxBody)
	case !json.Valid(answer):
		return nil, errors.New("read answer: not JSON")
	}
	return answer, nil
}

// States of an answer.
const (
	pending = "pending"
	granted = "granted"
	denied  = "denied"
)

// answer is the agent's answer to a request, not checked. All times may be absurd.
type answer struct {
	State      string       `json:"state"`
	Reason     string       `json:"reason"`
	RetryAfter api.Duration `json:"retry_after"`
	Deadline   api.Duration `json:"deadline"` // since boot
}

// parseAnswer parses an answer. Unknown fields are ignored.
func parseAnswer(body []byte) (a answer, err error) {
	if err := json.Unmarshal(body, &a); err != nil {
		return answer{}, fmt.Errorf("read answer: %w", err)
	}
	if a.State != pending && a.State != granted && a.State != denied {
		return answer{}, fmt.Errorf("read answer: state %.20q", a.State)
	}
	return a, nil
}

// parsePaused parses for how long soft stops are suspended, from 0 to maxPaused, by the answer to a state. An older agent does not say.
func parsePaused(body []byte) time.Duration {
	var s struct {
		PausedFor api.Duration `json:"paused_for"`
	}
	if json.Unmarshal(body, &s) != nil {
		return 0
	}
	return min(max(time.Duration(s.PausedFor), 0), maxPaused)
}

// until returns until when a permit is valid, at most maxPermit from now; 0 = it is not.
func (a *answer) until(now time.Duration) time.Duration {
	if d := time.Duration(a.Deadline); d > now {
		return min(d, now+maxPermit)
	}
	return 0
}

// retryAfter returns when the agent expects another answer, from 0 to maxRetry.
func (a *answer) retryAfter() time.Duration {
	return min(max(time.Duration(a.RetryAfter), 0), maxRetry)
}

// pause returns for how long not to repeat a request that was denied.
func (a *answer) pause() time.Duration {
	return min(max(a.retryAfter(), time.Second), deniedEvery)
}

// reason returns why the request is denied, for people.
func (a *answer) reason() string {
	if a.Reason == "" {
		return "denied"
	}
	return short(a.Reason)
}

// short returns a text of the agent on one line, cut to maxReason bytes.
func short(text string) string {
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return safetext.Line(text)
}

// plain returns a text for a request: the text itself, or its hash if the agent would refuse it.
func plain(text string, most int) string {
	if text == "" || len(text) > most || strings.Trim(text, ".") == "" {
		return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	}
	return text
}
