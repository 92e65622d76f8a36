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

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/policy"
)

// stopFlags are the flags of a command that stops pods and waits until they have stopped.
type stopFlags struct {
	grace, timeout time.Duration
	yes            bool
}

// add adds the flags to a command. what is what the command does, for the help of --timeout.
func (s *stopFlags) add(cmd *cobra.Command, c *api.Command, what string) {
	f := cmd.Flags()
	f.DurationVar(&s.grace, "grace", 30*time.Second, "grace period; a pod's own counts if it is shorter")
	f.DurationVar(&s.timeout, "timeout", 5*time.Minute, "how long to wait; the "+what+" continues after it")
	f.BoolVarP(&c.DryRun, "dry-run", "n", false, "show what would be stopped, and stop nothing")
	f.BoolVarP(&s.yes, "yes", "y", false, "do not ask on a terminal")
	reasonFlag(cmd, c)
}

// plan checks the flags and asks the service for the plan of the command. It returns api.ErrRefused if the service
// would refuse the command itself, so that the user is not asked first.
func (s *stopFlags) plan(ctx context.Context, o *options, c *api.Command) (*control.Client, api.CommandAnswer, error) {
	if s.timeout < 0 {
		return nil, api.CommandAnswer{}, fmt.Errorf("--timeout %s: must not be negative", s.timeout)
	}
	c.Grace = api.Duration(s.grace)
	plan := *c
	plan.DryRun = true
	client := control.NewClient(o.dir())
	answer, err := client.Command(ctx, plan)
	if err == nil && answer.Refused != "" && !c.DryRun {
		err = fmt.Errorf("%w: %s", api.ErrRefused, answer.Refused)
	}
	return client, answer, err
}

// consent shows the plan to a user on a terminal and asks. Without a terminal it does not ask: running a
// command from a script counts as consent. It reports whether it has shown the plan.
func (s *stopFlags) consent(cmd *cobra.Command, plan api.CommandAnswer, question string) (shown bool, err error) {
	w := cmd.ErrOrStderr()
	if s.yes {
		return false, nil
	}
	if ask, err := interactive(w); err != nil || !ask {
		return false, err
	}
	printPlan(w, plan)
	if !confirmed(cmd.Context(), os.Stdin, w, question) {
		return true, errNotConfirmed("stopped")
	}
	return true, nil
}

// show prints the plan of a dry run, and a note if the service would refuse the command itself now.
func (o *options) show(cmd *cobra.Command, answer api.CommandAnswer) error {
	if answer.Refused != "" && !o.JSON() {
		cli.Say(cmd.ErrOrStderr(), "note: refused now: %s\n", answer.Refused)
	}
	return o.Print(cmd, answer, func(w io.Writer) { printPlan(w, answer) })
}

// wait asks the service until it reports an end, or for the timeout. While the service restarts, it continues.
// late returns the error for the timeout, unless the service is away then.
func (s *stopFlags) wait(ctx context.Context, every time.Duration, ask func(context.Context) (bool, error), late func() error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var away error
	for {
		done, err := ask(ctx)
		if done || err != nil && ctx.Err() == nil && !restarting(err) {
			return err
		}
		if ctx.Err() == nil { // otherwise the timeout has cut the answer short
			away = err
		}
		select {
		case <-ctx.Done():
			if away != nil {
				return fmt.Errorf("gave up waiting: %w", away)
			}
			return late()
		case <-tick.C:
		}
	}
}

// restarting reports whether the service did not answer, perhaps because it restarts, or has not listed the pods since.
func restarting(err error) bool {
	return errors.Is(err, control.ErrNoService) || errors.Is(err, control.ErrNoAnswer) || errors.Is(err, cri.ErrNoRuntime)
}

// interactive reports whether a command can ask a user on a terminal, on w. If the user would not see the
// question, it returns an error.
func interactive(w io.Writer) (bool, error) {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return false, nil
	}
	if _, ok := cli.Terminal(w); !ok {
		return false, errors.New("cannot ask: standard error is not a terminal (--yes does not ask)")
	}
	return true, nil
}

// confirmed asks the user a question. The end of ctx, as by Ctrl-C, counts as no.
func confirmed(ctx context.Context, in io.Reader, out io.Writer, question string) bool {
	cli.Say(out, "%s [y/N] ", question)
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // EOF without a line counts as no
		lines <- line
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(out)
		return false
	case line := <-lines:
		answer := strings.ToLower(strings.TrimSpace(line))
		return answer == "y" || answer == "yes"
	}
}

// errNotConfirmed returns the error of a command whose user did not confirm: nothing was done.
func errNotConfirmed(done string) error {
	return &cli.Error{Code: cli.ExitFinding, Err: errors.New("not confirmed: nothing was " + done)}
}

func printPlan(w io.Writer, a api.CommandAnswer) {
	if len(a.Plan.Pods) == 0 {
		printMessage(w, a) // without a header
		return
	}
	t := cli.NewTable(w, "POD", "PRIORITY", "QOS", "GRACE", "PLAN").Spare("QOS", "PRIORITY")
	pods := a.Plan.Pods
	names := podNames(len(pods), func(i int) (pod, sandbox string) { return pods[i].Pod, pods[i].Sandbox })
	for i, p := range pods {
		grace, what := policy.ShortDuration(time.Duration(p.Grace)), "stop"
		if p.Stays != "" {
			grace, what = "-", "stays: "+p.Stays
		}
		t.Row(names[i], fmt.Sprint(p.Priority), p.QoS, grace, what)
	}
	t.Flush()
	printMessage(w, a)
}

func printMessage(w io.Writer, a api.CommandAnswer) { cli.Say(w, "%s\n", a.Message) }
