package critest

import (
	"os"
	"testing"

	"github.com/criguard/criguard/test/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

func TestContract(t *testing.T) {
	for _, d := range Dialects() {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			var opts []Option
			if d == CRIO { // as on CRI-O and most nodes
				opts = append(opts, WithSystemdCgroups())
			}
			Contract(t, New(t, d, opts...).Target())
		})
	}
}
