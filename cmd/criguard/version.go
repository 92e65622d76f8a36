package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard/api"
)

func newVersion() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			v := api.Version{APIVersion: api.APIVersion, Version: version, Go: runtime.Version(), Platform: platform}
			return o.Print(cmd, v, func(w io.Writer) { fmt.Fprintf(w, "criguard %s (%s, %s)\n", version, runtime.Version(), platform) })
		},
	}
	o.OutputFlag(cmd)
	return cmd
}
