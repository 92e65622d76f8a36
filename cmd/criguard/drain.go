package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
)

func newDrain(o *options) *cobra.Command {
	c := api.Command{Command: api.CommandDrain}
	var flags stopFlags
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Stop every pod that may be stopped, and new ones until undrain",
		Long: `Stop every pod that is not protected, the lowest priority first and four at a time,
and wait until they have stopped. Critical pods stay and, unless the configuration says
otherwise, static pods and those of kube-system. Until ` + "`criguard undrain`" + ` the service
also stops new pods; its restart does not end that, a reboot does. It refuses a drain
while it is paused or in observe mode.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, answer, err := flags.plan(cmd.Context(), o, &c)
			if err != nil {
				return err
			}
			if c.DryRun {
				return o.show(cmd, answer)
			}
			shown, err := flags.consent(cmd, answer, "Stop "+api.Count(answer.Plan.Left, "pod")+", and new ones until undrain?")
			if err != nil {
				return err
			}
			if answer, err = client.Command(cmd.Context(), c); err != nil {
				return err
			}
			switch {
			case o.JSON():
			case shown:
				printMessage(cmd.OutOrStdout(), answer)
			default:
				printPlan(cmd.OutOrStdout(), answer)
			}
			if err := flags.drained(cmd.Context(), client, answer.Plan); err != nil {
				return err
			}
			answer.Message = "drained"
			if n := answer.Plan.Left; n > 0 {
				answer.Message += "; " + api.Count(n, "pod") + " started meanwhile: criguard stops new ones until undrain"
			}
			// JSON is a single value: the answer, or the error.
			return o.Print(cmd, answer, func(w io.Writer) { printMessage(w, answer) })
		},
	}
	flags.add(cmd, &c, "drain")
	o.OutputFlag(cmd)
	return cmd
}

func newUndrain(o *options) *cobra.Command {
	return o.newOrder(api.CommandUndrain, "undrain", "Let new pods run again after a drain")
}

// drained waits until no pod that the plan stops is still running. It keeps the plan up to date. A kubelet starts its pods again,
// in other sandboxes: if these counted, the wait would never end.
func (s *stopFlags) drained(ctx context.Context, client *control.Client, plan *api.DrainPlan) error {
	first := map[string]bool{}
	for _, p := range plan.Pods {
		first[p.Sandbox] = p.Stays == ""
	}
	left := func() (names []string) {
		for _, p := range plan.Pods {
			if first[p.Sandbox] && p.Stays == "" {
				names = append(names, p.Pod)
			}
		}
		return names
	}
	return s.wait(ctx, 500*time.Millisecond, func(ctx context.Context) (bool, error) {
		next, err := client.Drain(ctx)
		if err != nil {
			return false, err
		}
		if *plan = next; !plan.Draining {
			return true, &cli.Error{Code: cli.ExitFinding, Err: errors.New("undrained before the drain finished")}
		}
		return len(left()) == 0, nil
	}, func() error {
		return cli.NewError(cli.ExitFinding, fmt.Errorf("not drained yet: %s", strings.Join(left(), ", ")), "the drain continues; `criguard status` and `criguard history` show its progress")
	})
}
