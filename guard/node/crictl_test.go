package node

import (
	"path/filepath"
	"testing"
	"time"

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
