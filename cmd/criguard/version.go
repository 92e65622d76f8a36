package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard/api"
)

const platform = runtime.GOOS + "/" + runtime.GOARCH

// versionLine is what people see of the version.
func versionLine() string {
	return fmt.Sprintf("criguard %s (%s, %s)\n", version, runtime.Version(), platform)
}

func newVersion() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := api.Version{APIVersion: api.APIVersion, Version: version, Go: runtime.Version(), Platform: platform}
			return o.Print(cmd, v, func(w io.Writer) { fmt.Fprint(w, versionLine()) })
		},
	}
	o.OutputFlag(cmd)
	return cmd
}
