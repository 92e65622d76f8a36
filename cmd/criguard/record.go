package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/trace"
)

func newRecord(o *options) *cobra.Command {
	interval := time.Second
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Write a trace of the live node, for simulate",
		Long: `Write a trace of the live node to standard output, one JSON value per line, until
interrupted or for the time of --for. Near a threshold it writes more lines, and each line
has only what changed. It reclaims and stops nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 10*time.Millisecond {
				return fmt.Errorf("--interval %s: want 10ms or more", interval)
			}
			if length < 0 {
				return fmt.Errorf("--for %s: must not be negative", length)
			}
			keepUp()
			_, err := look(cmd.Context(), o, func(l *guard.Look) (struct{}, error) {
				ctx, cancel := context.WithCancel(cmd.Context())
				defer cancel()
				if length > 0 {
					defer time.AfterFunc(length, cancel).Stop()
				}
				return struct{}{}, l.Record(ctx, cmd.OutOrStdout(), interval, newPasses(ctx, control.NewClient(o.dir())))
			})
			return err
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", interval, "most time between two lines, at least 10ms")
	cmd.Flags().Var((*cli.Duration)(&length), "for", "how long to record; 0 = until interrupted")
	return cmd
}

// newPasses returns a function that returns the passes that the service has made since its last call.
func newPasses(ctx context.Context, service *control.Client) trace.Passes {
	old, _ := service.History(ctx, 1) // without an answer, all passes from now on are new
	last, since := newest(old), time.Now()
	return func(ctx context.Context) ([]api.Pass, error) {
		var q api.HistoryQuery
		if last.ID == 0 {
			q.Since = since
		}
		found, err := passesAfter(last, q, func(q api.HistoryQuery) (api.HistoryList, error) { return service.Passes(ctx, q) })
		if len(found) > 0 {
			last = newest(found)
		}
		return found, err
	}
}

// serviceNice is Nice= in the unit of the service.
const serviceNice = -10

// keepUp gives every thread the priority of the service. Otherwise, on a busy node, the service may stop a pod
// before a reading shows why. Without root, the priority stays as it is.
func keepUp() {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, serviceNice)
		}
	}
}
