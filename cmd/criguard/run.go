package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/systemd"
)

func newRun(o *options) *cobra.Command {
	var observe bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Guard this node, until told to end",
		Long: `Guard this node: watch, prune, and stop the pod that ranks first when pressure
persists. SIGHUP reloads the configuration; a bad one is refused and the old one
stays. SIGTERM ends it within
seven seconds, of which stops under way get three.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			load := func() (guard.Config, error) {
				cfg, err := o.load()
				if observe {
					cfg.Mode = guard.ModeObserve
				}
				return cfg, err
			}
			cfg, err := load()
			if err != nil {
				return err
			}
			stayAlive()
			handler, flush := systemd.NewHandler(slog.LevelInfo)
			defer flush()
			log := slog.New(handler)
			notifier, err := systemd.NewNotifier()
			if err != nil {
				log.Warn("service manager cannot be told", systemd.EventKey, systemd.EventDegraded, "reason", err.Error())
			}
			err = guard.Serve(cmd.Context(), guard.ServiceOptions{
				Config: cfg, RunDir: o.dir(), Version: version,
				Log: log, Notifier: notifier, Reload: onHangup(cmd.Context(), load),
			})
			return classify(err)
		},
	}
	cmd.Flags().BoolVar(&observe, "observe", false, "do everything but the acts, whatever the configuration's mode")
	return cmd
}

// memoryLimit is from where on the collector works hard: edge boards count each MiB.
// GOMEMLIMIT says otherwise.
const memoryLimit = 32 << 20

// gcPercent has the collector run before the heap is twice what is kept: what a listing
// spreads over fresh pages stays spread, a MiB and a half of it. It costs an idle guard
// 0.01 % of a core. GOGC says otherwise.
const gcPercent = 50

// stayAlive makes the process one that a node in trouble can still run.
func stayAlive() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// A log that nobody reads any more must not end the guard.
	signal.Ignore(syscall.SIGPIPE)
	startThreads(spareThreads)
}

// spareThreads is more than were ever seen to be in use, with stops, listings and
// clients at once.
const spareThreads = 8

// startThreads has the Go runtime start so many threads, which it keeps: one that cannot be
// started, on a node without PIDs, would end the process.
func startThreads(n int) {
	var started, ended sync.WaitGroup
	started.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread() // each waits in a thread of its own
			defer runtime.UnlockOSThread()
			started.Done()
			started.Wait()
		})
	}
	ended.Wait()
}

// onHangup sends load for each SIGHUP, until ctx ends.
func onHangup(ctx context.Context, load func() (guard.Config, error)) <-chan func() (guard.Config, error) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	loads := make(chan func() (guard.Config, error))
	go func() {
		defer signal.Stop(hup)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
			}
			select {
			case <-ctx.Done():
				return
			case loads <- load:
			}
		}
	}()
	return loads
}
