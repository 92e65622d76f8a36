package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/criguard/criguard/cri/socket"
)

// KnownEndpoints returns the sockets at which runtimes listen, in the order to try them. Distributions
// that bundle containerd come before the generic one, because a node may also have Docker's containerd,
// which answers without the CRI.
func KnownEndpoints() []string {
	return []string{
		"unix:///run/k3s/containerd/containerd.sock", // k3s, RKE2
		"unix:///run/k3s/cri-dockerd/cri-dockerd.sock",
		"unix:///run/k0s/containerd.sock",
		"unix:///var/snap/microk8s/common/run/containerd.sock",
		"unix:///run/dockershim.sock", // Bottlerocket's containerd
		"unix:///run/containerd/containerd.sock",
		"unix:///run/crio/crio.sock",
		"unix:///run/cri-dockerd.sock",
	}
}

// Find returns the first candidate whose runtime answers Version within timeout: an existing socket
// proves nothing. The error is one line with the answer of each candidate and the list of absent
// sockets.
func (n Network) Find(ctx context.Context, candidates []string, timeout time.Duration) (string, Version, error) {
	var tried []any // errors
	var absent []string
	for _, endpoint := range candidates {
		if path, is := n.absentSocket(endpoint); is {
			absent = append(absent, path)
			continue
		}
		v, err := n.probe(ctx, endpoint, timeout)
		if err == nil {
			return endpoint, v, nil
		}
		tried = append(tried, fmt.Errorf("probe %s: %w", endpoint, err))
		if ctx.Err() != nil {
			break
		}
	}
	if len(absent) > 0 {
		tried = append(tried, fmt.Errorf("%w: no socket %s", ErrUnavailable, strings.Join(absent, ", ")))
	}
	if len(tried) == 0 {
		return "", Version{}, errors.New("find runtime: no endpoint to try")
	}
	return "", Version{}, fmt.Errorf("find runtime: %w"+strings.Repeat("; %w", len(tried)-1), tried...)
}

// absentSocket returns the socket's path and whether it is absent, so that there is nothing to dial.
func (n Network) absentSocket(endpoint string) (path string, is bool) {
	path, err := socket.Path(endpoint)
	if err != nil || n.DialSocket != nil {
		return "", false
	}
	_, err = os.Stat(path)
	return path, errors.Is(err, fs.ErrNotExist)
}

// Probe asks a runtime for its version and whether it has pods (see HasPods). The timeout limits each
// call.
func (n Network) Probe(ctx context.Context, endpoint string, timeout time.Duration) (v Version, pods bool, err error) {
	if path, is := n.absentSocket(endpoint); is {
		return Version{}, false, fmt.Errorf("probe %s: %w: no socket %s", endpoint, ErrUnavailable, path)
	}
	c, err := n.Dial(endpoint, timeout)
	if err != nil {
		return Version{}, false, err
	}
	defer func() { _ = c.Close() }()
	if v, err = c.Version(ctx); err != nil {
		return Version{}, false, fmt.Errorf("probe %s: %w", endpoint, err)
	}
	if pods, err = c.HasPods(ctx); err != nil {
		return Version{}, false, fmt.Errorf("probe %s: %w", endpoint, err)
	}
	return v, pods, nil
}

func (n Network) probe(ctx context.Context, endpoint string, timeout time.Duration) (Version, error) {
	c, err := n.Dial(endpoint, timeout)
	if err != nil {
		return Version{}, err
	}
	v, err := c.Version(ctx)
	return v, errors.Join(err, c.Close())
}

// CrictlEndpoint reads runtime-endpoint from crictl's configuration, by default /etc/crictl.yaml; "" =
// it is not set. If the file is absent, the error is fs.ErrNotExist.
func CrictlEndpoint(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read crictl configuration: %w", err)
	}
	return parseCrictl(string(b)), nil
}

// parseCrictl returns the value of the top-level key runtime-endpoint. crictl writes plain "key: value"
// lines; parseCrictl skips all other YAML syntax.
func parseCrictl(text string) string {
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		key, value, ok := strings.Cut(line, ":")
		if !ok || strings.Trim(strings.TrimRight(key, " \t"), `"'`) != "runtime-endpoint" {
			continue
		}
		if value != "" && !strings.ContainsRune(" \t\r\n", rune(value[0])) {
			continue // "key:value" is one word in YAML
		}
		return yamlScalar(value)
	}
	return ""
}

// yamlScalar returns a one-line scalar without its quotes and comment. It keeps escapes in double
// quotes: the path of a socket needs none.
func yamlScalar(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return ""
	}
	if q := s[0]; q == '"' || q == '\'' {
		if end := strings.IndexByte(s[1:], q); end >= 0 {
			return strings.TrimSpace(s[1 : 1+end])
		}
		return ""
	}
	for i := range len(s) {
		if s[i] == '#' && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t') {
			s = s[:i]
			break
		}
	}
	if s = strings.TrimSpace(s); s == "~" || s == "null" {
		return ""
	}
	return s
}
