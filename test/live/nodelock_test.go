package live_test

import (
	"strings"
	"testing"

	"github.com/criguard/criguard/test/lab"
)

// A second service over the same runtime is refused, whatever its run directory is, and names the first one's.
func TestSecondServiceIsRefused(t *testing.T) {
	n := newNode(t, lab.Containerd2)
	s := n.start()
	again := n.criguard("run", "--config", n.config(), "--run-dir", t.TempDir())
	if again.Code != 2 || !strings.Contains(again.Err, "another criguard is running") || !strings.Contains(again.Err, n.dir) {
		t.Errorf("exit code %d, %s, want 2 and %s", again.Code, again.Err, n.dir)
	}
	if s.End(); s.Cmd.ProcessState.ExitCode() != 0 {
		t.Error("the first one was disturbed")
	}
	n.start() // the lock ended with it
}
