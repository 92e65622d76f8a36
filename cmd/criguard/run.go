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
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/machine"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/systemd"
)

func newRun(o *options) *cobra.Command {
	var observe bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the service",
		Long: `Run the service: watch the node, remove garbage, and stop the pod that relieves the
shortage when pressure persists. SIGHUP reloads the configuration; criguard rejects an
invalid one and keeps the old one. Without a configuration file, it enforces the
defaults; --observe only logs. After SIGTERM the service exits within seven seconds,
three of which are for stops in flight, or within twelve if a disk does not answer.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			load := func() (config.Config, error) {
				cfg, err := o.load()
				cfg.Dir = o.ownDir()
				if observe {
					cfg.Mode = config.ModeObserve
				}
				return cfg, err
			}
			cfg, err := load()
			if err != nil {
				return err
			}
			prepare(memoryLimit)
			startThreads(spareThreads)
			handler, flush := systemd.NewHandler(slog.LevelInfo)
			defer flush()
			log := slog.New(safetext.NewHandler(handler))
			notifier, err := systemd.NewNotifier()
			if err != nil {
				log.Warn("sd_notify failed", systemd.EventKey, systemd.EventDegraded, "reason", err.Error())
			}
			return guard.Serve(cmd.Context(), guard.ServiceOptions{
				Config: cfg, Dir: o.ownDir(), Version: version,
				Machine: machine.Real(), Log: log, Notifier: notifier, Load: load, Reload: onHangup(cmd.Context(), load),
			})
		},
	}
	cmd.Flags().BoolVar(&observe, "observe", false, "dry run: log stops without performing them, whatever the configuration's mode")
	return cmd
}

// memoryLimit is the soft limit in bytes above which the garbage collector works harder: on edge
// boards each MiB counts. GOMEMLIMIT overrides it.
const memoryLimit = 32 << 20

// gcPercent collects garbage before the heap has doubled: the pages that a listing touches stay
// resident, about 1.5 MiB. It costs an idle guard 0.01 % of a core. GOGC overrides it.
const gcPercent = 50

// prepare makes a service fit to run beside the pods: its memory has a soft limit in bytes.
func prepare(memory int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// A process started by hand may have no umask. Files for other users get their mode explicitly.
	syscall.Umask(0o077)
	// A closed log pipe must not end the service, nor a second signal its shutdown.
	signal.Ignore(syscall.SIGPIPE)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM)
}

// spareThreads exceeds the highest number of threads seen in use, with stops, listings and clients
// at once.
const spareThreads = 8

// startThreads makes the Go runtime start n threads, which it keeps. On a node without free PIDs, a
// failed thread start would end the process.
func startThreads(n int) {
	var started, ended sync.WaitGroup
	started.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread() // gives each goroutine a thread of its own
			defer runtime.UnlockOSThread()
			started.Done()
			started.Wait()
		})
	}
	ended.Wait()
}

// onHangup sends load on each SIGHUP until ctx ends. A later one does not end the process, which may be waiting for stops.
func onHangup(ctx context.Context, load func() (config.Config, error)) <-chan func() (config.Config, error) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	loads := make(chan func() (config.Config, error))
	go func() {
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
