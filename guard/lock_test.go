package guard

import (
	"errors"
	"strings"
	"testing"

	"github.com/criguard/criguard/guard/rundir"
)

func TestRunDirLock(t *testing.T) {
	d := rundir.Dir(t.TempDir())
	lock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(); !errors.Is(err, rundir.ErrRunning) || !strings.Contains(err.Error(), "pid ") {
		t.Errorf("the second: %v", err)
	}
	lock.Release()
	if lock, err = d.Lock(); err != nil {
		t.Fatal(err)
	}
	lock.Release()
}
