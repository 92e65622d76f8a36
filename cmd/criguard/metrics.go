package main

import (
	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
)

func newMetrics(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "metrics",
		Short: "Print the service's metrics for Prometheus",
		Long: `Print the running service's own metrics in Prometheus' text format, as for
node_exporter's textfile collector. Those of its process are left out: node_exporter
has its own of the same names. /metrics on the control socket has all.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return classify(guard.NewClient(o.dir()).Metrics(cmd.Context(), cmd.OutOrStdout()))
		},
	}
}
