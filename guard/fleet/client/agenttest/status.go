package agenttest

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/criguard/criguard/guard/fleet/agent"
)

// Status asks the real agent on a socket for its state.
func Status(ctx context.Context, socket string) (s agent.Status, err error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/v1/status", http.NoBody)
	if err != nil {
		return s, err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return s, err
	}
	defer func() { _ = resp.Body.Close() }()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}
