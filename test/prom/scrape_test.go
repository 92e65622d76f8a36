package prom_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/test/harness"
)

// Prometheus' checker accepts a real service's metrics from each of the three sources.
func TestScrapeIsClean(t *testing.T) {
	dir := harness.ShortDir(t)
	n, textfile := &harness.Node{T: t, Dir: dir}, filepath.Join(dir, "criguard.prom")
	// A condition that begins at once, and a hook for it, so that the rarest metrics have values,
	// too.
	text := fmt.Sprintf("mode = \"observe\"\n[runtime]\nendpoint = \"/none\"\n[history]\ndir = %q\n[metrics]\ntextfile = %q\n", dir, textfile) +
		"[eviction.soft]\n\"nodefs.available\" = \"99.99%\"\n[eviction.soft_grace_period]\n\"nodefs.available\" = \"1h\"\n[[hook]]\non = \"condition\"\ncommand = [\"/bin/true\"]\n"
	n.Configure(text)
	n.Start()
	own := ""
	n.Within(harness.Patience, "the hook to run", func() bool {
		own = n.Run(n.Args("metrics")...).Out
		return strings.Contains(own, `criguard_hook_events_total{event="condition",result="ok"} 1`)
	})
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
	// The textfile collector rejects a file without a final newline or with duplicates of other
	// metrics.
	if !strings.HasSuffix(string(file), "\n") || strings.Contains(string(file), "\nprocess_") {
		t.Errorf("the file is\n%s", file)
	}
	if left, err := filepath.Glob(textfile + "?*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// scrape fetches the metrics like Prometheus, over the control socket.
func scrape(t *testing.T, socket string) string {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
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
