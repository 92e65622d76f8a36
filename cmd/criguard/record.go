package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
)

func newRecord(o *options) *cobra.Command {
	interval := time.Second
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Write a trace of the live node, for simulate",
		Long: `Write a trace of the live node to standard output, one JSON value per line, until
interrupted or for as long as --for says. Nothing is reclaimed or stopped.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 10*time.Millisecond {
				return fmt.Errorf("--interval %s: want 10ms or more", interval)
			}
			if length < 0 {
				return fmt.Errorf("--for %s: must not be negative", length)
			}
			cfg, err := o.load()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if length > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, length)
				defer cancel()
			}
			look, err := guard.OpenLook(ctx, cfg)
			if err != nil {
				return classify(err)
			}
			defer look.Close()
			return classify(look.Record(ctx, cmd.OutOrStdout(), interval))
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", interval, "time between two lines, at least 10ms")
	cmd.Flags().DurationVar(&length, "for", 0, "how long to record; 0 = until interrupted")
	return cmd
}
