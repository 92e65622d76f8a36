package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/criguard/criguard/systemd"
)

// textfileEvery is how often the metrics are written to a file, where that is asked
// for: as often as node_exporter is usually scraped.
const textfileEvery = 15 * time.Second

// answer serves the control socket and, where configured, the metrics elsewhere,
// until ctx ends. The returned function closes all of it.
func (s *Service) answer(ctx context.Context, wg *sync.WaitGroup) (end func(), err error) {
	control, err := ListenControl(s.opt.RunDir)
	if err != nil {
		return nil, err
	}
	var servers []*http.Server
	serve := func(l net.Listener, h http.Handler) {
		srv := NewServer(h)
		servers = append(servers, srv)
		wg.Go(func() {
			if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.log.Warn("server ended", systemd.EventKey, systemd.EventDegraded, "reason", err.Error())
			}
		})
	}
	serve(control, Handler(s, s, s.metrics))
	if addr := s.opt.Config.Metrics.Listen; addr != "" {
		if l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr); err != nil {
			s.log.Warn("metrics are on the control socket alone", systemd.EventKey, systemd.EventDegraded, "action", "metrics", "reason", err.Error())
		} else {
			mux := http.NewServeMux()
			mux.Handle("GET /metrics", s.metrics.Handler())
			serve(newDoor(l), mux)
		}
	}
	if path := s.opt.Config.Metrics.Textfile; path != "" {
		s.log.Info("metrics are written to a file", systemd.EventKey, systemd.EventStart, "action", "metrics", "file", path, "every", textfileEvery)
		wg.Go(func() { s.writeMetrics(ctx, path) })
	}
	return func() {
		for _, srv := range servers {
			_ = srv.Close()
		}
	}, nil
}

// writeMetrics writes the metrics to a file every so often, until ctx ends.
func (s *Service) writeMetrics(ctx context.Context, path string) {
	tick := time.NewTicker(textfileEvery)
	defer tick.Stop()
	for {
		if err := s.metrics.WriteFile(path); err != nil && s.once("textfile") {
			s.log.Warn("metrics cannot be written to a file", systemd.EventKey, systemd.EventDegraded, "action", "metrics",
				"reason", fmt.Errorf("write %s: %w", path, err).Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
