package prom_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A real service's metrics, by each of the three ways to them, are what Prometheus'
// own checker has nothing to say about.
func TestScrapeIsClean(t *testing.T) {
	dir, err := os.MkdirTemp("", "criguard-prom-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config, textfile := filepath.Join(dir, "config.toml"), filepath.Join(dir, "criguard.prom")
	// A condition that begins at once, and a hook for it: the rarest metrics have values, too.
	text := fmt.Sprintf("mode = \"observe\"\n[runtime]\nendpoint = \"/none\"\n[history]\ndir = %q\n[metrics]\ntextfile = %q\n", dir, textfile) +
		"[eviction.soft]\n\"nodefs.available\" = \"99.99%\"\n[eviction.soft_grace_period]\n\"nodefs.available\" = \"1h\"\n[[hook]]\non = \"condition\"\ncommand = [\"/bin/true\"]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config", config, "--run-dir", dir}
	var log strings.Builder
	service := exec.Command(built.criguard, append([]string{"run"}, args...)...)
	service.Stderr = &log
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = service.Process.Signal(syscall.SIGTERM)
		if err := service.Wait(); err != nil {
			t.Errorf("the service ended: %v\n%s", err, log.String())
		}
	}()
	own := ""
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(own, `criguard_hook_events_total{event="condition",result="ok"} 1`); {
		if time.Now().After(deadline) {
			t.Fatalf("the hook was not run:\n%s", own)
		}
		out, err := exec.CommandContext(t.Context(), built.criguard, append([]string{"metrics"}, args...)...).Output()
		if err == nil {
			own = string(out)
		}
	}
	promtool(t, own, "check", "metrics")
	if strings.Contains(own, "\ngo_") || !strings.Contains(own, "\ncriguard_build_info{") {
		t.Errorf("criguard metrics prints\n%s", own)
	}

	all := scrape(t, filepath.Join(dir, "criguard.sock"))
	promtool(t, all, "check", "metrics")
	for _, want := range []string{"\ngo_goroutines ", "\nprocess_resident_memory_bytes ", "\ncriguard_passes_total{"} {
		if !strings.Contains(all, want) {
			t.Errorf("/metrics has no %q", want)
		}
	}

	file, err := os.ReadFile(textfile)
	if err != nil {
		t.Fatal(err)
	}
	promtool(t, string(file), "check", "metrics")
	// What the collector refuses: a file without an end to its last line, or others'
	// metrics.
	if !strings.HasSuffix(string(file), "\n") || strings.Contains(string(file), "\nprocess_") {
		t.Errorf("the file is\n%s", file)
	}
	if left, err := filepath.Glob(textfile + "?*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// scrape asks for the metrics as Prometheus would, over the control socket.
func scrape(t *testing.T, socket string) string {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://criguard/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	return string(b)
}
