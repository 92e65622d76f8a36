package report_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/test/lab"
)

// criguard is the program that the tests run.
var criguard string

func TestMain(m *testing.M) {
	os.Exit(lab.Main(m, func(ctx context.Context, dir string) error {
		criguard = filepath.Join(dir, "criguard")
		return lab.BuildCriguard(ctx, criguard)
	}))
}

// service is a `criguard run` whose socket, history and configuration are in one directory.
type service struct {
	*testing.T
	dir string
}

// serve starts a service and returns when it answers. It ends with the test.
func serve(t *testing.T, dir, config string) *service {
	t.Helper()
	s := &service{t, dir}
	config += fmt.Sprintf("[history]\ndir = %q\n", dir)
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd := exec.Command(criguard, s.args("run")...)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		if err := <-ended; err != nil || t.Failed() {
			t.Errorf("criguard run: %v\n%s", err, log.String())
		}
	})
	s.until("the service to answer", func() bool {
		if len(ended) > 0 {
			t.Fatal("the service ended")
		}
		_, err := s.client().Status(context.Background())
		return err == nil
	})
	return s
}

func (s *service) client() *guard.Client { return guard.NewClient(guard.RunDir(s.dir)) }

func (s *service) args(args ...string) []string {
	return append(args, "--config", filepath.Join(s.dir, "config.toml"), "--run-dir", s.dir)
}

// ask is what a command prints; it must end with that exit code.
func (s *service) ask(code int, args ...string) string {
	s.Helper()
	cmd := exec.Command(criguard, s.args(args...)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		s.Fatalf("criguard %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, errs.String())
	}
	return out.String() + errs.String()
}

// report is the page.
func (s *service) report(args ...string) []byte {
	s.Helper()
	return []byte(s.ask(0, append([]string{"report"}, args...)...))
}

func (s *service) until(what string, done func() bool) {
	s.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

// jsonLine is a value as a line of a file.
func jsonLine(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}
