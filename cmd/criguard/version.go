package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
)

func newVersion() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output == "json" {
				return printJSON(cmd.OutOrStdout(), map[string]string{
					"apiVersion": guard.APIVersion, "version": version, "go": runtime.Version(),
					"platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "criguard %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	o.outputFlag(cmd)
	return cmd
}
