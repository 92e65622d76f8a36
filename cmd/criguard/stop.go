package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
)

func newStop(o *options) *cobra.Command {
	c := api.Command{Command: api.CommandStop}
	var flags stopFlags
	cmd := &cobra.Command{
		Use:   "stop POD",
		Short: "Stop a pod now, by the service's rules",
		Long: `Stop a pod now, as the service stops one, and wait until it has stopped. POD is
namespace/name, the UID or the sandbox ID. A protected pod is refused. The stop takes
nothing from the budget, and the history, the journal and the hooks record it. A kubelet
does not know about it and starts the pod again. Without a kubelet, nothing does. The
service refuses a stop while it is paused or in observe mode.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Pod = args[0]
			client, answer, err := flags.plan(cmd.Context(), o, &c)
			if err != nil {
				return err
			}
			if c.DryRun {
				return o.show(cmd, answer)
			}
			if _, err := flags.consent(cmd, answer, "Stop "+args[0]+"?"); err != nil {
				return err
			}
			for _, p := range answer.Plan.Pods {
				c.Pod = p.Sandbox // and not one that has replaced it meanwhile
			}
			if answer, err = client.Command(cmd.Context(), c); err != nil {
				return err
			}
			if !o.JSON() {
				printMessage(cmd.OutOrStdout(), answer)
			}
			if answer.Stop, err = flags.stopped(cmd.Context(), client, answer.Pass); err != nil {
				return err
			}
			what, how := words.Effect(answer.Stop)
			if !answer.Stop.Result.Emptied {
				return cli.NewError(cli.ExitFinding, fmt.Errorf("%s: %s", what, how), "`criguard history` shows what was tried")
			}
			answer.Message = what + " (" + how + ")"
			// JSON is a single value: the answer, or the error.
			return o.Print(cmd, answer, func(w io.Writer) { printMessage(w, answer) })
		},
	}
	flags.add(cmd, &c, "stop")
	o.OutputFlag(cmd)
	return cmd
}

// errStopLost is the error for a service that has ended without keeping a record of the stop. One that has it continues the stop.
var errStopLost = cli.NewError(cli.ExitFinding, errors.New("the service has restarted during the stop, and its result is not known"), "`criguard rank` shows whether the pod still runs")

// stopped waits until the stop that a pass began is over, and returns it with its result.
func (s *stopFlags) stopped(ctx context.Context, client *control.Client, pass uint64) (stop *api.StopView, err error) {
	restarted := false
	err = s.wait(ctx, 100*time.Millisecond, func(ctx context.Context) (bool, error) {
		list, err := client.Passes(ctx, api.HistoryQuery{From: pass})
		if err != nil {
			restarted = restarted || restarting(err)
			return false, err
		}
		for i := range list.Passes {
			for j := range list.Passes[i].Settled {
				if v := &list.Passes[i].Settled[j]; v.Pass == pass && v.Result != nil {
					stop = v
					return true, nil
				}
			}
		}
		if restarted && !slices.ContainsFunc(list.Passes, func(p api.Pass) bool { return p.ID == pass }) {
			return true, errStopLost
		}
		return false, nil
	}, func() error {
		return cli.NewError(cli.ExitFinding, errors.New("not stopped yet"), "the stop continues; `criguard status` and `criguard history` show its progress")
	})
	return stop, err
}
