package fleetcmd

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
)

// longestPause limits a pause of a fleet, which nothing else ends if it is forgotten.
const longestPause = 7 * 24 * time.Hour

func newPause(o *options) *cobra.Command {
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Suspend the soft stops of the whole fleet for a while",
		Long: `Suspend the soft stops of the whole fleet for a while, seven days at most. Hard thresholds
are not affected. A node applies the pause with its next request or report, within three
minutes if it wants a soft stop. It needs the certificate of an operator (--cert and --key).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch given := cmd.Flags().Lookup("for"); {
			case !given.Changed:
				return cli.Misused(cmd, fmt.Errorf("--for is missing: want %s to %s", fleet.MinSlot, cli.Age(longestPause)))
			case length < fleet.MinSlot || length > longestPause:
				return cli.Misused(cmd, fmt.Errorf("--for %s: want %s to %s", cli.Age(length), fleet.MinSlot, cli.Age(longestPause)))
			}
			return o.operate(cmd, func(c *etcd.Client) (api.CommandAnswer, error) {
				err := c.Pause(cmd.Context(), length)
				return api.CommandAnswer{
					Message: "soft stops of the fleet are paused for " + cli.Age(length), Until: time.Now().Add(length).UTC().Truncate(time.Second),
				}, err
			})
		},
	}
	cmd.Flags().Var((*cli.Duration)(&length), "for", "how long, 2s to 168h or 7d; mandatory")
	cmd.Flags().Lookup("for").DefValue = "" // there is no default to show
	o.certFlags(cmd)
	o.OutputFlag(cmd)
	return cmd
}

func newResume(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End a pause of the fleet",
		Long: `End a pause of the fleet. It needs the certificate of an operator (--cert and --key), and
does nothing if there is no pause.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.operate(cmd, func(c *etcd.Client) (api.CommandAnswer, error) {
				return api.CommandAnswer{Message: "the fleet is not paused: soft stops are permitted at its rates"}, c.Resume(cmd.Context())
			})
		},
	}
	o.certFlags(cmd)
	o.OutputFlag(cmd)
	return cmd
}

func newForget(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget NODE",
		Short: "Remove a node that is gone from the fleet",
		Long: `Remove a node that is gone from the fleet, before its membership expires after three
hours. "criguard fleet status" shows its name. A node that still runs comes back with its next
report. It needs the certificate of an operator (--cert and --key).`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.operate(cmd, func(c *etcd.Client) (api.CommandAnswer, error) {
				removed, err := c.Forget(cmd.Context(), args[0])
				if err == nil && removed == 0 {
					err = cli.NewError(cli.ExitUsage, fmt.Errorf("forget %s: no such node in the fleet", args[0]), "`criguard fleet status` lists the nodes")
				}
				return api.CommandAnswer{Message: args[0] + " is removed from the fleet"}, err
			})
		},
	}
	o.certFlags(cmd)
	o.OutputFlag(cmd)
	return cmd
}

// certFlags adds the flags for another certificate than the node's.
func (o *options) certFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.cert, "cert", "", "certificate to use instead of the one in fleet.toml, as of an operator")
	cmd.Flags().StringVar(&o.key, "key", "", "key of --cert")
}

// operate runs an operator's command and prints the answer.
func (o *options) operate(cmd *cobra.Command, do func(c *etcd.Client) (api.CommandAnswer, error)) error {
	_, _, client, err := o.open()
	if err != nil {
		return err
	}
	defer client.Close()
	answer, err := do(client)
	if err != nil {
		if errors.Is(err, etcd.ErrPermission) && o.cert == "" {
			return cli.NewError(cli.ExitUsage, err, "the node's certificate may not do this; name an operator's with --cert and --key")
		}
		return errorOf(err)
	}
	answer.APIVersion = api.APIVersion
	return o.Print(cmd, answer, func(w io.Writer) { cli.Say(w, "%s\n", answer.Message) })
}
