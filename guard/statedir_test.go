package guard

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/history"
	"github.com/criguard/criguard/guard/inventory"
	"github.com/criguard/criguard/guard/node/nodetest"
)

// Unless history.dir names another directory, the history, the signals around stops and the image ledger are
// in the run directory that the service was given.
func TestStateFollowsRunDir(t *testing.T) {
	s, _, end := servedEffect(t, configtest.Parse(t, nodetest.Config(t)))
	s.keep(&api.Pass{ID: 1})
	s.gc.Stopped(inventory.Pod{EndedImages: []string{"app:1"}})
	end()
	for _, name := range []string{history.FileName, "images.json"} {
		if _, err := os.Stat(filepath.Join(string(s.opt.Dir), name)); err != nil {
			t.Error(err)
		}
	}
	if want := filepath.Join(string(s.opt.Dir), history.WindowDir); s.samples.Dir() != want {
		t.Errorf("signals around stops are in %s, want %s", s.samples.Dir(), want)
	}
}
