package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Output is the flag --output of a command that prints.
type Output struct{ Format string } // table, wide or json

// OutputFlag adds the flag to a command.
func (o *Output) OutputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Format, "output", "o", "table", "table, wide (not cut to fit the terminal) or json")
	prev := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		switch o.Format {
		case "table", "json":
		case "wide":
			cmd.SetOut(whole{cmd.OutOrStdout()})
			cmd.SetErr(whole{cmd.ErrOrStderr()})
		default:
			return fmt.Errorf("--output %q: want table, wide or json", o.Format)
		}
		if prev != nil {
			return prev(cmd, args)
		}
		return nil
	}
}

// JSON reports whether the user wants JSON.
func (o *Output) JSON() bool { return o.Format == "json" }

// Print writes a value as JSON or as a table.
func (o *Output) Print(cmd *cobra.Command, v any, table func(w io.Writer)) error {
	if o.JSON() {
		return PrintJSON(cmd.OutOrStdout(), v)
	}
	table(cmd.OutOrStdout())
	return nil
}
