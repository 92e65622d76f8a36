package guard

import (
	"context"
	"strings"
	"sync"

	"github.com/criguard/criguard/systemd"
)

// maxLoggedChanges bounds the lines of one reload in the log.
const maxLoggedChanges = 32

// callsOrReload merges reload requests into the calls of the loop. What takes time,
// reading files and telling the service manager, is done beside the loop. The service
// manager hears of the beginning before anything is read, and of the end after the
// configuration is in force or refused, as Type=notify-reload wants it.
func (s *Service) callsOrReload(ctx context.Context, wg *sync.WaitGroup) <-chan func() {
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case load := <-s.opt.Reload:
				s.notify(s.opt.Notifier.Reloading())
				cfg, err := load()
				status := make(chan string, 1)
				select {
				case s.calls <- func() { s.reload(cfg, err); status <- s.statusLine() }:
					s.notify(s.opt.Notifier.Ready(<-status))
				case <-ctx.Done():
					return
				}
			}
		}
	})
	return s.calls
}

// reload puts a new configuration in force; a bad one changes nothing.
func (s *Service) reload(cfg Config, err error) {
	s.metrics.reload(err)
	if err != nil {
		s.note = "the last reload was refused: " + err.Error()
		s.log.Error("configuration refused; the old one stays", systemd.EventKey, systemd.EventConfigRefused, "action", "reload", "reason", err.Error())
		return
	}
	changes, names := cfg.Changes(s.guard.cfg), cfg.Diff(s.guard.cfg)
	s.note = ""
	s.guard.SetConfig(cfg)
	s.node.setConfig(cfg)
	s.node.kernel.enough = 0 // what is far from every threshold is not known before the next pass
	hint(s.repace)
	s.keeper.setConfig(cfg)
	s.hooks.configure(cfg.Hooks)
	s.history.Resize(cfg.History.Passes)
	s.log.Info("configuration reloaded", systemd.EventKey, systemd.EventConfigReload, "action", "reload", "changed", strings.Join(names, ", "))
	for _, c := range changes[:min(len(changes), maxLoggedChanges)] {
		s.log.Info("key changed", "action", "reload", "key", c.Key, "old", orUnset(c.Old), "new", orUnset(c.New))
	}
	if more := len(changes) - maxLoggedChanges; more > 0 {
		s.log.Info("more keys changed", "action", "reload", "count", more)
	}
	// Against what the service was made of: a later reload does not make it other.
	if later := needRestart(cfg.Diff(s.opt.Config)); len(later) > 0 {
		s.note = "takes effect at the next start: " + strings.Join(later, ", ")
		s.log.Warn("some keys take effect at the next start", systemd.EventKey, systemd.EventConfigReload, "action", "reload",
			"reason", s.note)
	}
	s.wake("reload")
}

func orUnset(value string) string {
	if value == "" {
		return "unset"
	}
	return value
}

// needRestart picks the keys that say what the service is made of.
func needRestart(keys []string) []string {
	var later []string
	for _, k := range keys {
		if strings.HasPrefix(k, "runtime.") || strings.HasPrefix(k, "node.") || strings.HasPrefix(k, "metrics.") || k == "history.dir" {
			later = append(later, k)
		}
	}
	return later
}
