package report_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/criguard/criguard/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// service is a running `criguard run` with its socket, history and configuration in one directory.
type service struct{ *harness.Node }

// serve starts a service and returns when it answers. The service ends with the test.
func serve(t *testing.T, dir, config string) *service {
	t.Helper()
	s := &service{&harness.Node{T: t, Dir: dir}}
	s.Configure(config + fmt.Sprintf("[history]\ndir = %q\n", dir))
	s.Start()
	return s
}

// ask runs a command, checks its exit code, and returns its output.
func (s *service) ask(code int, args ...string) string {
	s.Helper()
	a := s.Run(s.Args(args...)...)
	if a.Code != code {
		s.Fatalf("criguard %s: exit code %d, want %d\n%s", strings.Join(args, " "), a.Code, code, a.Err)
	}
	return a.Out + a.Err
}

// report returns the page.
func (s *service) report(args ...string) []byte {
	s.Helper()
	return []byte(s.ask(0, append([]string{"report"}, args...)...))
}

// jsonLine returns a value as a line of JSON.
func jsonLine(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}
