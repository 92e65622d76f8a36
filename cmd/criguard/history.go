package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard"
)

func newHistory(o *options) *cobra.Command {
	var n int
	var since string
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show the last passes that did something, and why",
		Long: `Show the last passes that did something, and why. The running service is asked.

--since shows all since then, unless -n says how many. "criguard explain PASS" shows all
that is known of one.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 0 {
				return fmt.Errorf("--number %d: must not be negative", n)
			}
			if since != "" && !cmd.Flags().Changed("number") {
				n = 0
			}
			now := time.Now()
			passes, err := o.history(cmd.Context(), since, now)
			if err != nil {
				return err
			}
			if n > 0 && len(passes) > n {
				passes = passes[len(passes)-n:]
			}
			if o.output == "json" {
				return printJSON(cmd.OutOrStdout(), guard.HistoryList{APIVersion: guard.APIVersion, Passes: passes})
			}
			if len(passes) == 0 && since != "" {
				fmt.Fprintln(cmd.OutOrStdout(), "Nothing has happened in that time.")
				return nil
			}
			printHistory(cmd.OutOrStdout(), passes, now)
			return nil
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 20, "how many passes, the newest; 0 = all")
	sinceFlag(cmd, &since)
	o.outputFlag(cmd)
	return cmd
}

// sinceFlag adds --since to a command that tells of passes.
func sinceFlag(cmd *cobra.Command, since *string) {
	cmd.Flags().StringVar(since, "since", "", "what came since then: a duration ago, as 1h30m, or a time, as 2006-01-02T15:04:05Z (default: all that is kept)")
}

// history asks for the passes since then, oldest first; all for "".
func (o *options) history(ctx context.Context, since string, now time.Time) ([]guard.Pass, error) {
	var from time.Time
	if since != "" {
		var err error
		if from, err = words.ParseSince(since, now); err != nil {
			return nil, err
		}
	}
	passes, err := guard.NewClient(o.dir()).History(ctx, 0)
	if err != nil {
		return nil, classify(err)
	}
	// The wall clock may have jumped, so that they need not be in its order.
	return slices.DeleteFunc(passes, func(p guard.Pass) bool { return p.Time.Before(from) }), nil
}

func printHistory(w io.Writer, passes []guard.Pass, now time.Time) {
	if len(passes) == 0 {
		fmt.Fprintln(w, "Nothing has happened yet.")
		return
	}
	t := newTable(w, "PASS", "TIME", "AGO", "WAKE", "TOOK", "WHAT", "WHY")
	for i := range passes {
		p := &passes[i]
		id, at, took := fmt.Sprint(p.ID), words.Clock(p.Time.Local(), now), p.Took.Round(10*time.Microsecond).String()
		ago, wake := words.Ago(p.Time, now), p.Wake
		for _, e := range words.Tell(p) {
			t.row(id, at, ago, wake, took, e.What, e.Why)
			id, at, ago, wake, took = "", "", "", "", ""
		}
	}
	t.flush()
}
