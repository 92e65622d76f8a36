package critest

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestContract(t *testing.T) {
	for _, d := range Dialects() {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			var opts []Option
			if d == CRIO { // as CRI-O and most nodes are set up
				opts = append(opts, WithSystemdCgroups())
			}
			Contract(t, New(t, d, opts...).Target())
		})
	}
}
