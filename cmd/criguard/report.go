package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/report"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard"
)

func newReport(o *options) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write a web page of what happened: plots around each stop, rankings, configuration",
		Long: `Write one web page to standard output: each stop with the signals around it, the
thresholds and the ranking of that moment; the passes, the signals now, and the
configuration in force. It holds all that it needs and asks no network for anything:

    criguard report > node.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := o.report(cmd.Context(), since)
			if err != nil {
				return err
			}
			return report.Write(cmd.OutOrStdout(), in)
		},
	}
	sinceFlag(cmd, &since)
	return cmd
}

// report asks the service for all that a page is made of.
func (o *options) report(ctx context.Context, since string) (*report.Input, error) {
	in := &report.Input{Made: time.Now()}
	in.Host, _ = os.Hostname() // a page without a name is still one
	var err error
	if in.Passes, err = o.history(ctx, since, in.Made); err != nil {
		return nil, err
	}
	if since != "" {
		if in.Since, err = words.ParseSince(since, in.Made); err != nil {
			return nil, err
		}
	}
	c := guard.NewClient(o.dir())
	if in.Status, err = c.Status(ctx); err != nil {
		return nil, classify(err)
	}
	if in.Windows, err = c.Windows(ctx); err != nil {
		return nil, classify(err)
	}
	if in.Samples, err = c.Samples(ctx, 0); err != nil {
		return nil, classify(err)
	}
	if in.Settings, err = c.Settings(ctx); err != nil {
		return nil, classify(err)
	}
	return in, nil
}
