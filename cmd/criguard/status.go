package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
				err = o.print(cmd, st, func(w io.Writer) { printStatus(w, &st) })
			}
			return cmp.Or(err, verdict(&st))
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again every second")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing, only set the exit code")
	o.outputFlag(cmd)
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
	screen, onScreen := terminal(out)
	var last error
	for shown := false; ; shown = true {
		st, err := o.status(cmd.Context())
		switch {
		case cmd.Context().Err() != nil:
			return last
		case err != nil && !shown:
			return err
		case onScreen && o.output != "json":
			_, _ = screen.WriteString("\x1b[H\x1b[2J") // cursor home, clear the screen
		case shown && o.output != "json":
			fmt.Fprintln(out)
		}
		switch {
		case err != nil:
			say(cmd.ErrOrStderr(), "criguard: %s\n", err.Error())
			err = &codeError{code: codeOf(err).code} // it is reported
		case o.output == "json":
			err = printLine(out, st)
		default:
			printStatus(out, &st)
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
		return &codeError{code: exitUnreachable}
	case underPressure(st):
		return &codeError{code: exitFinding}
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
	who := "daemon not running; inspected the node directly"
	if st.GuardedBy != "" {
		who = "no daemon answers here, but one guards this node: " + st.GuardedBy + "; inspected the node directly"
	}
	if st.Live {
		who = fmt.Sprintf("%s mode, pid %d, up %s", st.Mode, st.PID, age(time.Duration(st.Uptime)))
	}
	say(w, "criguard %s: %s\n", st.Version, who)
	rt := "no runtime answers"
	if st.Runtime.Up {
		rt = st.Runtime.Name + " " + st.Runtime.Version
	}
	if st.Runtime.Endpoint != "" {
		rt += " at " + st.Runtime.Endpoint
	}
	if st.Runtime.ListedAt != nil {
		rt += fmt.Sprintf(", %d pods (%d protected) listed %s ago", st.Pods, st.Protected, age(time.Duration(*st.Runtime.ListedAt)))
	}
	say(w, "runtime     %s\n", rt)
	if st.Runtime.Error != "" {
		why := strings.TrimPrefix(st.Runtime.Error, cri.ErrNoRuntime.Error()+": ")
		if _, cause, ok := strings.Cut(why, cri.ErrUnavailable.Error()+": "); ok {
			why = cause // "no runtime answers" is said already
		}
		say(w, "            %s\n", why)
	}
	pods := st.Kernel.PodsCgroup
	if pods == "" {
		pods = "not found"
	}
	say(w, "node        cgroup %s, pods cgroup %s, filesystems %s\n", st.Kernel.Cgroup, pods, st.Kernel.Layout)
	if len(st.Kernel.Wakes) > 0 {
		say(w, "woken by    %s\n", strings.Join(st.Kernel.Wakes, ", "))
	}
	say(w, "conditions  %s\n", cmp.Or(words.Conditions(st), "none"))
	if st.Held != "" {
		first := api.Hold{Threshold: st.HeldBy, Reason: st.Held, Detail: st.HeldDetail}
		say(w, "held back   %s: %s%s\n", first.Threshold, first.Why(), words.Next(st.Held, st.NextStopIn))
	}
	for _, h := range st.AlsoHeld {
		say(w, "held back   %s: %s\n", h.Threshold, h.Why())
	}
	for _, f := range st.InFlight {
		say(w, "stopping    %s\n", f)
	}
	for _, a := range st.Alarms {
		say(w, "ALARM       %s\n", a)
	}
	if p := st.Orders.Pause; p != nil {
		say(w, "PAUSED      for another %s, by %s%s\n", age(time.Duration(st.PausedFor)), p.By, because(p.Reason))
	}
	if d := st.Orders.Drain; d != nil {
		say(w, "DRAINED     until undrain, by %s%s\n", d.By, because(d.Reason))
	}
	for _, p := range st.Orders.Protected {
		say(w, "PROTECTED   %s for another %s, by %s%s\n", p.Pod, age(time.Duration(p.Left)), p.By, because(p.Reason))
	}
	if st.Live {
		say(w, "budget      %s\n", budgetLine(st))
	}
	if st.ConfigNote != "" {
		// A rejected configuration has one line per mistake.
		label := "config"
		for line := range strings.SplitSeq(st.ConfigNote, "\n") {
			say(w, "%-11s %s\n", label, line)
			label = ""
		}
	}
	for _, m := range st.Warnings {
		say(w, "warning     %s\n", m)
	}
	fmt.Fprintln(w)
	printSignals(w, st.Signals)
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

func printSignals(w io.Writer, signals []api.SignalStatus) {
	t := newTable(w, "SIGNAL", "AVAILABLE", "CAPACITY", "HARD", "SOFT", "STATE")
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
				soft = v + " for " + th.Grace.String()
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
		t.row(s.Signal.String(), available, capacity, hard, soft, state)
	}
	t.flush()
}

// age formats a duration for display.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return policy.ShortDuration(d.Round(time.Second))
	default:
		return policy.ShortDuration(d.Round(time.Minute))
	}
}
