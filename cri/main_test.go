package cri_test

import (
	"os"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
	"github.com/criguard/criguard/test/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// patience is a client timeout that no test exceeds by chance, even on a busy machine.
const patience = time.Minute

// dial returns a client and closes it when the test ends.
func dial(t testing.TB, endpoint string, timeout time.Duration) *cri.Client {
	t.Helper()
	c, err := cri.Dial(endpoint, timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// serve starts a runtime and returns it with a client.
func serve(t testing.TB, d critest.Dialect, opts ...critest.Option) (*critest.Server, *cri.Client) {
	t.Helper()
	s := critest.New(t, d, opts...)
	return s, dial(t, s.Endpoint(), patience)
}

// each runs a test with every dialect.
func each(t *testing.T, test func(t *testing.T, s *critest.Server, c *cri.Client)) {
	for _, d := range critest.Dialects() {
		t.Run(d.String(), func(t *testing.T) {
			s, c := serve(t, d)
			test(t, s, c)
		})
	}
}
