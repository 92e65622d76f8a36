package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/criguard/criguard/guard"
)

func newDrain(o *options) *cobra.Command {
	c := guard.Command{Command: guard.CommandDrain}
	grace, timeout, yes := 30*time.Second, 5*time.Minute, false
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Stop every sandbox that may be stopped, and new ones until undrain",
		Long: `Stop every sandbox that may be stopped, the lowest priority first and a few at a
time, and wait until they are gone. Protected, static and critical ones and those of
kube-system stay, as the configuration says. Until ` + "`criguard undrain`" + ` new sandboxes are
stopped, too; a restart of the service does not end that, a reboot does.

Exit code 1 says that some were still there when the time was over, or that nobody
confirmed. Under mode = "observe" nothing is drained.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout < 0 {
				return fmt.Errorf("--timeout %s: must not be negative", timeout)
			}
			c.Grace = guard.TraceDuration(grace)
			plan := c
			plan.DryRun = true
			answer, err := o.order(cmd.Context(), plan)
			if err != nil {
				return err
			}
			if !c.DryRun {
				// Off a terminal, whoever wrote the script has decided.
				if !yes && term.IsTerminal(int(os.Stdin.Fd())) && !confirmed(os.Stdin, cmd.ErrOrStderr(), answer.Plan.Left) {
					return &codeError{code: exitFinding, err: errors.New("nothing was stopped")}
				}
				if answer, err = o.order(cmd.Context(), c); err != nil {
					return err
				}
			}
			if o.output == "json" {
				err = printJSON(cmd.OutOrStdout(), answer)
			} else {
				printPlan(cmd.OutOrStdout(), answer)
			}
			if err != nil || c.DryRun {
				return err
			}
			if err := o.drained(cmd.Context(), timeout, *answer.Plan); err != nil || o.output == "json" {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "drained")
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&grace, "grace", grace, "grace period; a sandbox's own counts where it is shorter")
	f.DurationVar(&timeout, "timeout", timeout, "how long to wait for the end; the drain goes on after it")
	f.BoolVarP(&c.DryRun, "dry-run", "n", false, "name what would be stopped, and stop nothing")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask on a terminal")
	reasonFlag(cmd, &c)
	o.outputFlag(cmd)
	return cmd
}

func newUndrain(o *options) *cobra.Command {
	return o.newOrder(guard.CommandUndrain, "undrain", "Let new sandboxes run again after a drain")
}

// confirmed asks whether so many sandboxes may be stopped.
func confirmed(in io.Reader, out io.Writer, n int) bool {
	fmt.Fprintf(out, "Stop %d sandboxes, and new ones until undrain? [y/N] ", n)
	line, _ := bufio.NewReader(in).ReadString('\n') // an end without a line is no yes
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

func printPlan(w io.Writer, a guard.CommandAnswer) {
	t := newTable(w, "POD", "PRIORITY", "QOS", "GRACE", "")
	for _, p := range a.Plan.Pods {
		grace, what := p.Grace.String(), "stop"
		if p.Stays != "" {
			grace, what = "-", "stays: "+p.Stays
		}
		t.row(p.Pod, fmt.Sprint(p.Priority), p.QoS, grace, what)
	}
	t.flush()
	fmt.Fprintln(w, a.Message)
}

// drained waits until nothing of the plan runs any more that is to be stopped.
func (o *options) drained(ctx context.Context, timeout time.Duration, plan guard.DrainPlan) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	client := guard.NewClient(o.dir())
	for {
		select {
		case <-ctx.Done():
			var left []string
			for _, p := range plan.Pods {
				if p.Stays == "" {
					left = append(left, p.Pod)
				}
			}
			return &codeError{exitFinding, fmt.Errorf("not drained yet: %s", strings.Join(left, ", ")), "the drain goes on; `criguard status` and `criguard history` tell how"}
		case <-tick.C:
		}
		next, err := client.Drain(ctx)
		switch {
		case err == nil:
			plan = next
		case ctx.Err() == nil && !errors.Is(err, guard.ErrNoService) && !errors.Is(err, guard.ErrNoAnswer): // a restart is no end
			return classify(err)
		}
		if err == nil && !plan.Draining {
			return &codeError{code: exitFinding, err: errors.New("undrained before the drain was through")}
		}
		if err == nil && plan.Left == 0 {
			return nil
		}
	}
}
