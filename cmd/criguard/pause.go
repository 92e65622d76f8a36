package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
)

func newPause(o *options) *cobra.Command {
	c := api.Command{Command: api.CommandPause}
	length := 30 * time.Minute
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Suspend reclaiming and stops for a while",
		Long: `Suspend reclaiming, stops and pruning for a while, 24 hours at most. The service keeps
watching and logging. The pause expires, or ends with ` + "`criguard resume`" + `; a restart of
the service does not end it, a reboot does. A stop in flight continues, and
` + "`criguard prune`" + ` still works.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.For = api.Duration(length)
			return o.command(cmd, c)
		},
	}
	lengthFlag(cmd, &length)
	reasonFlag(cmd, &c)
	o.OutputFlag(cmd)
	return cmd
}

// lengthFlag adds --for to a command that is in force for a while.
func lengthFlag(cmd *cobra.Command, length *time.Duration) {
	cmd.Flags().Var((*cli.Duration)(length), "for", "how long, up to 24h")
}

func newResume(o *options) *cobra.Command {
	cmd := o.newOrder(api.CommandResume, "resume", "End a pause")
	cmd.Long = `End a pause, and print which thresholds are met now. Nothing holds stops back: for a hard
threshold, it also prints which pod the service would stop first.`
	return cmd
}

// newOrder returns a command that takes no arguments except a reason.
func (o *options) newOrder(name, use, short string) *cobra.Command {
	c := api.Command{Command: name}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.command(cmd, c) },
	}
	reasonFlag(cmd, &c)
	o.OutputFlag(cmd)
	return cmd
}

func reasonFlag(cmd *cobra.Command, c *api.Command) {
	cmd.Flags().StringVar(&c.Reason, "reason", "", "why, for the record")
}

// command sends a command to the service and prints the answer.
func (o *options) command(cmd *cobra.Command, c api.Command) error {
	answer, err := control.NewClient(o.dir()).Command(cmd.Context(), c)
	if err != nil {
		return err
	}
	return o.Print(cmd, answer, func(w io.Writer) { printMessage(w, answer) })
}
