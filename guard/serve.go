package guard

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/metrics"
	"github.com/criguard/criguard/systemd"
)

// answer serves the control socket and, if configured, metrics on another address or in a file, until ctx
// ends. end closes the servers.
func (s *Service) answer(ctx context.Context, wg *sync.WaitGroup) (end func(), err error) {
	socket, err := s.opt.Machine.Listen(s.opt.Dir)
	if errors.Is(err, syscall.ENOSPC) { // the keeper tries again
		s.log.Error("no control socket, no command reaches the service", systemd.EventKey, systemd.EventDegraded, "action", "restore", "reason", err.Error())
	} else if err != nil {
		return nil, err
	}
	clients, endClients := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() {
		s.keeper(ctx).Keep(clients, socket, time.Tick(control.KeepEvery))
	})
	if addr := s.opt.Config.Metrics.Listen; addr != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", s.metrics.Handler())
		pages := &control.Keeper{Handler: mux, Ended: s.serverEnded, Failed: func(err error) {
			s.log.Warn("metrics are on the control socket alone", systemd.EventKey, systemd.EventDegraded, "action", "metrics", "reason", err.Error())
		}}
		l := pages.ListenTCP(clients, addr)
		wg.Go(func() { pages.Keep(clients, l, time.Tick(control.KeepEvery)) })
	}
	if path := s.opt.Config.Metrics.Textfile; path != "" {
		s.log.Info("metrics are written to a file", systemd.EventKey, systemd.EventStart, "action", "metrics", "file", path, "every", metrics.FileEvery)
		wg.Go(func() {
			s.metrics.WriteFiles(ctx, path, time.Tick(metrics.FileEvery), func(err error) { s.degraded("textfile", "metrics", "metrics cannot be written to a file", err) })
		})
	}
	return endClients, nil
}

func (s *Service) serverEnded(err error) {
	s.log.Warn("server ended", systemd.EventKey, systemd.EventDegraded, "reason", err.Error())
}

// keeper returns what serves the control socket. When the socket was removed, alone or with the run directory, it
// restores what the service keeps there, unless ctx has ended.
func (s *Service) keeper(ctx context.Context) *control.Keeper {
	return &control.Keeper{
		Handler: control.Handler(s, s, s.metrics.Handler(), s.metrics.OwnHandler()),
		Removed: func() bool {
			_, err := os.Lstat(s.opt.Dir.Socket())
			return errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil
		},
		Restore: func() (net.Listener, error) { return s.restoreDir(ctx) },
		Failed: func(err error) {
			s.log.Error("run directory removed, no command reaches the service", systemd.EventKey, systemd.EventDegraded, "action", "restore", "reason", err.Error())
		},
		Ended: s.serverEnded,
	}
}

// restoreDir restores the run directory after it was removed: the lock, the socket and the state files.
func (s *Service) restoreDir(ctx context.Context) (net.Listener, error) {
	if err := s.lock.Renew(); err != nil {
		return nil, err
	}
	l, err := s.opt.Machine.Listen(s.opt.Dir)
	if err != nil {
		return nil, err
	}
	s.log.Warn("run directory restored: its socket was removed", systemd.EventKey, systemd.EventDegraded, "action", "restore", "file", s.opt.Dir.Socket())
	select {
	case s.calls <- func() {
		s.conditions.Restore() // with the next pass
		s.saveBudget()
		s.inForce()
		s.keepHard()
		s.saver.Wake()
	}:
	case <-ctx.Done():
	}
	return l, nil
}
