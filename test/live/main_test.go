package live_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/criguard/criguard/test/lab"
)

// built are the programs that the tests run.
var built struct{ criguard, workload string }

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, func(ctx context.Context, dir string) error {
		built.criguard, built.workload = filepath.Join(dir, "criguard"), filepath.Join(dir, "workload")
		return errors.Join(lab.BuildCriguard(ctx, built.criguard), lab.BuildWorkload(ctx, built.workload))
	}))
}
