package fleetcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/guard/rundir"
)

const (
	// agentTimeout limits the wait for the agent, which answers at once.
	agentTimeout = 2 * time.Second
	// maxAgentAnswer exceeds every answer.
	maxAgentAnswer = 1 << 20
)

// ask returns the state of this node's agent.
func ask(ctx context.Context, d rundir.Dir) (s agent.Status, err error) {
	text, err := Fetch(ctx, d, "/v1/status")
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read answer of the fleet's agent: %w", err)
	}
	return s, nil
}

// Fetch returns an answer of this node's agent.
func Fetch(ctx context.Context, d rundir.Dir, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var dialer net.Dialer
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", d.FleetSocket())
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the fleet's agent: %w", err)
	}
	resp, err := transport.RoundTrip(r) // follows no redirect
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("the fleet's agent does not run: %w (hint: `systemctl enable --now criguard-fleet`)", err)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("only root may ask the fleet's agent: %w", err)
	case err != nil:
		return nil, fmt.Errorf("ask the fleet's agent: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the fleet's agent: %s", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAgentAnswer))
	if err != nil {
		return nil, fmt.Errorf("ask the fleet's agent: %w", err)
	}
	return text, nil
}
