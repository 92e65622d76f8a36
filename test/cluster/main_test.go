package cluster_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/criguard/criguard/test/harness"
	"github.com/criguard/criguard/test/lab"
)

// built are the programs that the tests run.
var built struct{ workload string }

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(ctx context.Context, dir string) error {
		built.workload = filepath.Join(dir, "workload")
		return lab.BuildWorkload(ctx, built.workload)
	}))
}
