package main

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/fleetcmd"
	"github.com/criguard/criguard/guard/control"
)

func newMetrics(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "metrics",
		Short: "Print the service's metrics for Prometheus",
		Long: `Print the running service's own metrics in Prometheus' text format, as for
node_exporter's textfile collector. Those of its process are omitted: node_exporter
exports its own under the same names. /metrics on the control socket has all. On a node
of a fleet, the metrics of its agent follow, for root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := control.NewClient(o.dir()).Metrics(cmd.Context(), cmd.OutOrStdout()); err != nil {
				return err
			}
			text, err := fleetcmd.Fetch(cmd.Context(), o.dir(), "/v1/metrics")
			switch {
			case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission): // no fleet, or not for this user
				return nil
			case err != nil:
				return cli.NewError(cli.ExitUnreachable, err, "see the agent's log: `journalctl -u criguard-fleet`")
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
