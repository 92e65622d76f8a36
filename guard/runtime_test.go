package guard

import (
	"os"
	"testing"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

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
