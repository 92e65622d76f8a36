package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/report"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
)

func newReport(o *options) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Write a web page: plots around each stop, rankings, configuration",
		Long: `Write one web page to standard output: each stop with the signals around it, the
thresholds and the ranking of that moment; the passes, the signals now, and the
configuration in force. The page is self-contained and makes no network requests. It needs
a running service.

    criguard report > node.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := o.report(cmd, since)
			if err != nil {
				return err
			}
			return report.Write(cmd.OutOrStdout(), in)
		},
	}
	sinceFlag(cmd, &since)
	return cmd
}

// report fetches all data of a page from the service.
func (o *options) report(cmd *cobra.Command, since string) (*report.Input, error) {
	ctx := cmd.Context()
	in := &report.Input{Made: time.Now()}
	in.Host, _ = os.Hostname() // the page works without a host name
	var err error
	if since != "" {
		if in.Since, err = o.since(cmd, since, in.Made); err != nil {
			return nil, err
		}
	}
	c := control.NewClient(o.dir())
	if in.Status, err = c.Status(ctx); err != nil { // without a service, there is no report
		return nil, err
	}
	list, err := o.history(cmd, api.HistoryQuery{Since: in.Since})
	if err != nil {
		return nil, err
	}
	in.Passes = list.Passes
	if in.Windows, err = c.Windows(ctx); err != nil {
		return nil, err
	}
	if in.Samples, err = c.Samples(ctx, 0); err != nil {
		return nil, err
	}
	if in.Settings, err = c.Settings(ctx); err != nil {
		return nil, err
	}
	return in, nil
}
