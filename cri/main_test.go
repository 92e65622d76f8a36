package cri_test

import (
	"os"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/cri/critest"
)

func TestMain(m *testing.M) { os.Exit(critest.Main(m)) }

// patience is a client timeout that no test on a busy machine runs into by chance.
const patience = time.Minute

// dial connects to an endpoint until the test ends.
func dial(t testing.TB, endpoint string, timeout time.Duration, opts ...cri.Option) *cri.Client {
	t.Helper()
	c, err := cri.Dial(endpoint, timeout, opts...)
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

// serve starts a runtime and connects to it.
func serve(t testing.TB, d critest.Dialect, opts ...critest.Option) (*critest.Server, *cri.Client) {
	t.Helper()
	s := critest.New(t, d, opts...)
	return s, dial(t, s.Endpoint(), patience)
}

// each runs a test against every dialect.
func each(t *testing.T, test func(t *testing.T, s *critest.Server, c *cri.Client)) {
	for _, d := range critest.Dialects() {
		t.Run(d.String(), func(t *testing.T) {
			s, c := serve(t, d)
			test(t, s, c)
		})
	}
}
