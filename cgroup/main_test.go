package cgroup

import (
	"os"
	"testing"

	"github.com/criguard/criguard/test/leak"
)

// TestMain runs a helper process if the environment selects one.
func TestMain(m *testing.M) {
	if name := os.Getenv(helperVar); name != "" {
		os.Exit(runHelper(name))
	}
	os.Exit(leak.Main(m))
}
