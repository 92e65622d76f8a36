package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
)

func newPause(o *options) *cobra.Command {
	c := guard.Command{Command: guard.CommandPause}
	length := 30 * time.Minute
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Let the service watch and tell, but reclaim and stop nothing, for a while",
		Long: `Let the running service watch and tell, but neither reclaim nor stop nor prune, for
a while: 24 hours at most. It ends by itself, or with ` + "`criguard resume`" + `; a restart of
the service does not end it, a reboot does. Stops under way are not called off.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.For = guard.TraceDuration(length)
			return o.command(cmd, c)
		},
	}
	cmd.Flags().DurationVar(&length, "for", length, "how long, up to 24h")
	reasonFlag(cmd, &c)
	o.outputFlag(cmd)
	return cmd
}

func newResume(o *options) *cobra.Command {
	return o.newOrder(guard.CommandResume, "resume", "End a pause")
}

// newOrder is a command that has nothing to say but itself.
func (o *options) newOrder(name, use, short string) *cobra.Command {
	c := guard.Command{Command: name}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return o.command(cmd, c) },
	}
	reasonFlag(cmd, &c)
	o.outputFlag(cmd)
	return cmd
}

func reasonFlag(cmd *cobra.Command, c *guard.Command) {
	cmd.Flags().StringVar(&c.Reason, "reason", "", "why, for the record")
}

// command has the service carry something out and prints what came of it.
func (o *options) command(cmd *cobra.Command, c guard.Command) error {
	answer, err := o.order(cmd.Context(), c)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return printJSON(cmd.OutOrStdout(), answer)
	}
	fmt.Fprintln(cmd.OutOrStdout(), answer.Message)
	return nil
}

// order has the service carry something out.
func (o *options) order(ctx context.Context, c guard.Command) (guard.CommandAnswer, error) {
	answer, err := guard.NewClient(o.dir()).Command(ctx, c)
	return answer, classify(err)
}
