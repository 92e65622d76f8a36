package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/policy"
)

func newStatus(o *options) *cobra.Command {
	var watch, quiet bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the signals against their thresholds, the conditions and the budget",
		Long: `Show the signals against their thresholds, the conditions and the budget.

It asks the running service. Without one, it inspects the node directly, once. --watch shows
the status again every second until it is interrupted; with -o json, one status per line.
--quiet prints no status, for scripts that need only the exit code. With --watch, the last
status counts.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch && quiet {
				return errors.New("--watch --quiet: want one of them")
			}
			if watch {
				return o.watchStatus(cmd)
			}
			st, err := o.status(cmd.Context())
			if err != nil {
				return err
			}
			if !quiet {
				o.noteUnused(cmd)
				err = o.Print(cmd, st, func(w io.Writer) { printStatus(w, &st) })
			}
			return cmp.Or(err, verdict(&st))
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again every second")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing, only set the exit code")
	o.OutputFlag(cmd)
	return cmd
}

// watchEvery is how often --watch asks for the status.
const watchEvery = time.Second

// watchStatus shows the status again and again until the user interrupts it. Once it was shown, an error does
// not end it: the service may restart.
func (o *options) watchStatus(cmd *cobra.Command) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	out := cmd.OutOrStdout()
	screen, onScreen := cli.Terminal(out)
	var last error
	for shown := false; ; shown = true {
		st, err := o.status(cmd.Context())
		switch {
		case cmd.Context().Err() != nil:
			return last
		case err != nil && !shown:
			return err
		case onScreen && !o.JSON():
			_, _ = screen.WriteString("\x1b[H\x1b[2J") // cursor home, clear the screen
		case shown && !o.JSON():
			fmt.Fprintln(out)
		}
		switch {
		case err != nil:
			printError(out, cmd.ErrOrStderr(), o.JSON(), err)
			err = &cli.Error{Code: codeOf(err).Code} // it is reported
		case o.JSON():
			err = cli.PrintLine(out, st)
		default:
			fmt.Fprintln(out, time.Now().Format(time.DateTime))
			printStatus(out, &st)
			if onScreen || !shown {
				o.noteUnused(cmd)
			}
		}
		last = cmp.Or(err, verdict(&st))
		select {
		case <-cmd.Context().Done():
			return last
		case <-tick.C:
		}
	}
}

// verdict returns the finding that the node is under pressure, or nil.
func verdict(st *api.Status) error {
	switch {
	case !st.Runtime.Up:
		return cli.Unreachable()
	case underPressure(st):
		return cli.Finding()
	}
	return nil
}

func (o *options) status(ctx context.Context) (api.Status, error) {
	return fetch(ctx, o, func(c *control.Client) (api.Status, error) { return c.Status(ctx) }, func(l *guard.Look) (api.Status, error) {
		st := l.Status()
		st.Version = version
		return st, nil
	})
}

func underPressure(st *api.Status) bool {
	if st.Conditions != 0 || len(st.Alarms) > 0 {
		return true
	}
	for _, s := range st.Signals {
		for _, t := range s.Thresholds {
			if t.Met {
				return true
			}
		}
	}
	return false
}

func printStatus(w io.Writer, st *api.Status) {
	who := "no service runs (systemctl start criguard); inspected the node directly"
	if st.GuardedBy != "" {
		who = "no service answers here, but one guards this node: " + st.GuardedBy + "; inspected the node directly"
	}
	if !st.Live && st.Mode != "" {
		who += "; the configuration says " + st.Mode + " mode"
	}
	if st.Live {
		who = fmt.Sprintf("%s mode, pid %d, up %s", st.Mode, st.PID, cli.Age(time.Duration(st.Uptime)))
	}
	cli.Say(w, "criguard %s: %s\n", st.Version, who)
	rt := "no runtime answers"
	if st.Runtime.Up {
		rt = st.Runtime.Name + " " + st.Runtime.Version
	}
	if st.Runtime.Endpoint != "" {
		rt += " at " + st.Runtime.Endpoint
	}
	if st.Runtime.ListedAt != nil {
		rt += fmt.Sprintf(", %s (%d protected) listed %s ago", api.Count(st.Pods, "pod"), st.Protected, cli.Age(time.Duration(*st.Runtime.ListedAt)))
	}
	cli.Say(w, "runtime     %s\n", rt)
	for _, cause := range runtimeCauses(st) {
		cli.Say(w, "            %s\n", cause)
	}
	pods := st.Kernel.PodsCgroup
	if pods == "" {
		pods = "not found"
	}
	cli.Say(w, "node        cgroup %s, pods cgroup %s, filesystems %s\n", st.Kernel.Cgroup, pods, st.Kernel.Layout)
	if st.Live && len(st.Kernel.Wakes) > 0 {
		cli.Say(w, "woken by    %s\n", strings.Join(st.Kernel.Wakes, ", "))
	}
	cli.Say(w, "conditions  %s\n", cmp.Or(words.Conditions(st), "none"))
	if st.Held != "" {
		first := api.Hold{Threshold: st.HeldBy, Reason: st.Held, Detail: st.HeldDetail}
		cli.Say(w, "held back   %s: %s%s\n", first.Threshold, first.Why(), words.Next(st.Held, st.NextStopIn))
	}
	for _, h := range st.AlsoHeld {
		cli.Say(w, "held back   %s: %s\n", h.Threshold, h.Why())
	}
	for _, f := range st.InFlight {
		if pod, ok := strings.CutSuffix(f, " for "+api.KindCommand); ok {
			f = pod + ", by a command"
		}
		cli.Say(w, "stopping    %s\n", f)
	}
	for _, a := range st.Alarms {
		cli.Say(w, "ALARM       %s\n", a)
	}
	if p := st.Orders.Pause; p != nil {
		cli.Say(w, "PAUSED      for another %s, by %s%s\n", cli.Age(time.Duration(st.PausedFor)), p.By, because(p.Reason))
	}
	if d := st.Orders.Drain; d != nil {
		cli.Say(w, "DRAINED     until undrain, by %s%s\n", d.By, because(d.Reason))
	}
	for _, p := range st.Orders.Protected {
		cli.Say(w, "PROTECTED   %s for another %s, by %s%s\n", p.Pod, cli.Age(time.Duration(p.Left)), p.By, because(p.Reason))
	}
	if st.Live {
		cli.Say(w, "budget      %s\n", budgetLine(st))
		printStopped(w, st.Budget.Workloads)
	}
	if st.ConfigNote != "" {
		// A rejected configuration has one line per mistake.
		label := "config"
		for line := range strings.SplitSeq(st.ConfigNote, "\n") {
			cli.Say(w, "%-11s %s\n", label, line)
			label = ""
		}
	}
	for _, m := range st.Warnings {
		cli.Say(w, "warning     %s\n", m)
	}
	fmt.Fprintln(w)
	printSignals(w, st.Signals)
}

// runtimeCauses says why no runtime answers, in lines: the error of each endpoint, and then which sockets are
// absent. Next to an endpoint that fails, their names would only distract; next to a warning with their directories,
// they would be named twice.
func runtimeCauses(st *api.Status) []string {
	if st.Runtime.Error == "" {
		return nil
	}
	why := strings.TrimPrefix(st.Runtime.Error, cri.ErrNoRuntime.Error()+": ")
	why = strings.ReplaceAll(strings.TrimPrefix(why, "find runtime: "), cri.ErrUnavailable.Error()+": ", "") // the line above says so
	causes := strings.Split(why, "; ")
	last := len(causes) - 1
	if absent, ok := strings.CutPrefix(causes[last], "no socket "); ok && last > 0 {
		causes[last] = "no socket at " + api.Count(strings.Count(absent, ", ")+1, "other known path")
	} else if first, _, several := strings.Cut(absent, ", "); ok && several && strings.Contains(strings.Join(st.Warnings, "\n"), path.Dir(first)+",") {
		causes[last] = "no socket at " + api.Count(strings.Count(absent, ", ")+1, "known path")
	}
	if !st.Live && strings.Contains(why, "permission denied") {
		causes = append(causes, "run as root")
	}
	return causes
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func budgetLine(st *api.Status) string {
	b := st.Budget
	s := fmt.Sprintf("hard %d of %d, soft %d of %d", b.Hard.Left, b.Hard.Burst, b.Soft.Left, b.Soft.Burst)
	if b.PerHour > 0 {
		s += fmt.Sprintf("; %d hard and %d soft of %d left this hour",
			max(b.PerHour-b.Hard.LastHour, 0), max(b.PerHour-b.Soft.LastHour, 0), b.PerHour)
	}
	return s
}

// stoppedAtMost limits how many workloads the status names: a drain stops them all.
const stoppedAtMost = 5

// printStopped names the workloads that are in back-off or were stopped more than once in a row.
func printStopped(w io.Writer, all []api.Workload) {
	all = slices.DeleteFunc(slices.Clone(all), func(wl api.Workload) bool { return wl.Stops < 2 && wl.RetryAfter <= 0 })
	for i, wl := range all {
		if i == stoppedAtMost {
			cli.Say(w, "            and %s\n", api.Count(len(all)-i, "more workload"))
			return
		}
		text := wl.Workload + ": 1 stop, "
		if wl.Stops > 1 {
			text = fmt.Sprintf("%s: %d stops in a row, the last ", wl.Workload, wl.Stops)
		}
		text += cli.Age(time.Duration(wl.Ago)) + " ago"
		if wl.RetryAfter > 0 {
			text += fmt.Sprintf("; in back-off for another %s (soft stops of it wait)", cli.Age(time.Duration(wl.RetryAfter)))
		}
		cli.Say(w, "stopped     %s\n", text)
	}
}

func printSignals(w io.Writer, signals []api.SignalStatus) {
	t := cli.NewTable(w, "SIGNAL", "AVAILABLE", "CAPACITY", "HARD", "SOFT", "STATE").Spare("CAPACITY", "SOFT")
	for _, s := range signals {
		if s.Status == "absent" && len(s.Thresholds) == 0 {
			continue
		}
		hard, soft, state := "-", "-", "ok"
		for _, th := range s.Thresholds {
			v := api.FormatThreshold(s.Signal, th.Amount)
			if s.Status != "ok" {
				v = th.Value // percentage of an unknown capacity
			} else if strings.HasSuffix(th.Value, "%") {
				v += " (" + th.Value + ")"
			}
			if th.Kind == "hard" {
				hard = v
			} else {
				soft = v + " for " + policy.ShortDuration(time.Duration(th.Grace))
			}
			if th.Met && state != "MET hard" {
				state = "MET " + th.Kind
			}
		}
		available, capacity := api.FormatAmount(s.Signal, s.Available), api.FormatAmount(s.Signal, s.Capacity)
		if s.Status != "ok" {
			available, capacity, state = "-", "-", s.Status
			if s.Error != "" {
				state += ": " + s.Error
			}
		}
		t.Row(s.Signal.String(), available, capacity, hard, soft, state)
	}
	t.Flush()
}
