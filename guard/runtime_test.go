package guard

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/guard/lastgood/lastgoodtest"
	"github.com/criguard/criguard/guard/node/nodetest"
)

// A crictl configuration on a stalled disk still yields the last endpoint that it named.
func TestCrictlEndpointThatHangs(t *testing.T) {
	c := crictl{path: filepath.Join(t.TempDir(), "crictl.yaml"), wait: time.Minute}
	if got := c.endpoint(t.Context()); got != "" {
		t.Errorf("no file: %q", got)
	}
	nodetest.Write(t, filepath.Dir(c.path), map[string]string{"crictl.yaml": "runtime-endpoint: unix:///run/x.sock\n"})
	for range 2 {
		if got := c.endpoint(t.Context()); got != "unix:///run/x.sock" {
			t.Errorf("%q", got)
		}
		lastgoodtest.Stall(t, c.path)
		c.wait = time.Millisecond
	}
}

// If the runtime's process is visible, the runtime has answered since that process started.
func TestRuntimeSince(t *testing.T) {
	srv := critest.New(t, critest.Containerd2)
	n := &host{proc: defaultProc, conn: cri.NewConnector(cri.ConnectorOptions{Endpoint: srv.Endpoint(), Timeout: time.Minute, Now: cgroup.BootTime})}
	defer n.conn.Close()
	if err := n.conn.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	start, err := cgroup.ProcessStart(defaultProc, os.Getpid()) // the server runs in this process
	if err != nil {
		t.Fatal(err)
	}
	if since := n.runtimeSince(); since != start {
		t.Errorf("the process started at %v, the runtime at %v", start, since)
	}
}
