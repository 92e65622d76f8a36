package guard

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/conditions"
	"github.com/criguard/criguard/guard/config/configtest"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/gc"
	"github.com/criguard/criguard/guard/hold"
	"github.com/criguard/criguard/guard/machine"
	"github.com/criguard/criguard/guard/node/nodetest"
	"github.com/criguard/criguard/guard/rundir"
)

// A service whose run directory is removed restores the directory, its lock, the socket and the state files.
func TestRunDirComesBack(t *testing.T) {
	s, _ := newOperated(t, "")
	var text strings.Builder
	s.log = slog.New(slog.NewTextHandler(&text, nil))
	var err error
	if s.lock, err = s.opt.Dir.Lock(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.execute(t.Context(), api.Command{Command: api.CommandPause, For: api.Duration(time.Hour)}, api.Peer{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tick, ended := make(chan time.Time), make(chan struct{})
	l, err := control.Listen(s.opt.Dir)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		s.keeper(ctx).Keep(ctx, l, tick)
	}()
	for range 2 { // a second time as well
		thresholds := filepath.Join(gc.StateDir(&s.opt.Config), hold.FileName)
		if err := errors.Join(os.RemoveAll(string(s.opt.Dir)), os.RemoveAll(thresholds)); err != nil {
			t.Fatal(err)
		}
		tick <- time.Now()
		(<-s.calls)()
		p := s.guard.Pass(t.Context(), "test")
		s.after(&p)
		if err := errors.Join(s.history.Save(), s.samples.Save(), s.hard.Save()); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"criguard.sock", "lock", conditions.File, budgetFile, ordersFile} {
			if _, err := os.Stat(s.opt.Dir.Path(name)); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(thresholds); err != nil {
			t.Error(err)
		}
		if _, err := s.opt.Dir.Lock(); err == nil {
			t.Error("the directory is not locked")
		}
	}
	if err := os.Remove(s.opt.Dir.Socket()); err != nil {
		t.Fatal(err)
	}
	wantRestored(t, s, tick)
	cancel()
	<-ended
	if n := strings.Count(text.String(), "run directory restored"); n != 3 {
		t.Errorf("logged %d times: %s", n, text.String())
	}
}

// wantRestored lets the keeper look, and checks that the control socket answers.
func wantRestored(t *testing.T, s *Service, tick chan<- time.Time) {
	t.Helper()
	tick <- time.Now()
	(<-s.calls)()
	go func() { (<-s.calls)() }()
	if st, err := control.NewClient(s.opt.Dir).Status(t.Context()); err != nil || !st.Live {
		t.Errorf("the socket does not answer: %v", err)
	}
}

// A service starts although no inode is left for its socket, and creates it as soon as there is one.
func TestServiceStartsWithoutASocket(t *testing.T) {
	s, _ := newOperated(t, "")
	var err error
	if s.lock, err = s.opt.Dir.Lock(); err != nil {
		t.Fatal(err)
	}
	listen := s.opt.Machine.Listen
	for failure, starts := range map[syscall.Errno]bool{syscall.ENOSPC: true, syscall.EACCES: false} {
		s.opt.Machine.Listen = func(rundir.Dir) (net.Listener, error) { return nil, os.NewSyscallError("bind", failure) }
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		end, err := s.answer(ctx, &wg)
		if (err == nil) != starts {
			t.Errorf("%v: %v", failure, err)
		}
		cancel()
		if err == nil {
			end()
		}
		wg.Wait()
	}
	s.opt.Machine.Listen = listen
	ctx, cancel := context.WithCancel(t.Context())
	tick, ended := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(ended)
		s.keeper(ctx).Keep(ctx, nil, tick)
	}()
	wantRestored(t, s, tick)
	cancel()
	<-ended
}

// The status of a node without an answering service names the service that guards it.
func TestLookNamesTheGuard(t *testing.T) {
	cfg := configtest.Parse(t, nodetest.Config(t, "runtime.endpoint = '/none'"))
	guardedBy := func() string {
		l, err := OpenLook(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Status().GuardedBy
	}
	if by := guardedBy(); by != "" {
		t.Errorf("guarded by %q", by)
	}
	unlock, _, err := lockNode(ServiceOptions{Config: cfg, Machine: machine.Real(), Dir: rundir.Dir("/run/elsewhere")})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if by := guardedBy(); !strings.HasPrefix(by, "/run/elsewhere (pid ") {
		t.Errorf("guarded by %q", by)
	}
}
