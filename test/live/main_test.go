package live_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/criguard/criguard/test/lab"
)

// built are the programs that the tests run.
var built struct{ criguard, workload string }

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "criguard-live-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built.criguard, built.workload = filepath.Join(dir, "criguard"), filepath.Join(dir, "workload")
	if out, err := exec.Command("go", "build", "-race", "-o", built.criguard, "../../cmd/criguard").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build criguard: %v\n%s", err, out)
		return 1
	}
	if err := lab.BuildWorkload(context.Background(), built.workload); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Without it, each program sleeps for a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return lab.Main(m)
}
