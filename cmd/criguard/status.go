package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
)

func newStatus(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the signals against their thresholds, the conditions and the budget",
		Long: `Show the signals against their thresholds, the conditions and the budget.

The running service is asked; without one the node is looked at directly, once.
Exit code 1 says that a condition holds or a threshold is met.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := o.status(cmd.Context())
			if err != nil {
				return classify(err)
			}
			if o.output == "json" {
				err = printJSON(cmd.OutOrStdout(), st)
			} else {
				printStatus(cmd.OutOrStdout(), &st)
			}
			if err == nil && underPressure(&st) {
				err = &codeError{code: exitFinding}
			}
			return err
		},
	}
	o.outputFlag(cmd)
	return cmd
}

// status asks the service, or looks for itself.
func (o *options) status(ctx context.Context) (guard.Status, error) {
	st, err := guard.NewClient(o.dir()).Status(ctx)
	if !errors.Is(err, guard.ErrNoService) {
		return st, err
	}
	cfg, err := o.load()
	if err != nil {
		return st, err
	}
	look, err := guard.OpenLook(ctx, cfg)
	if err != nil {
		return st, err
	}
	defer look.Close()
	st = look.Status()
	st.Version = version
	return st, nil
}

func underPressure(st *guard.Status) bool {
	if len(st.Conditions) > 0 || len(st.Alarms) > 0 {
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

func printStatus(w io.Writer, st *guard.Status) {
	who := "no service runs; looked at directly"
	if st.Live {
		who = fmt.Sprintf("%s mode, pid %d, up %s", st.Mode, st.PID, age(st.Uptime))
	}
	fmt.Fprintf(w, "criguard %s: %s\n", st.Version, who)
	rt := "no runtime answers"
	if st.Runtime.Up {
		rt = st.Runtime.Name + " " + st.Runtime.Version
	}
	if st.Runtime.Endpoint != "" {
		rt += " at " + st.Runtime.Endpoint
	}
	if st.Runtime.ListedAt >= 0 {
		rt += fmt.Sprintf(", %d pods (%d protected) listed %s ago", st.Pods, st.Protected, age(st.Runtime.ListedAt))
	}
	fmt.Fprintf(w, "runtime     %s\n", rt)
	if st.Runtime.Error != "" {
		fmt.Fprintf(w, "            %s\n", st.Runtime.Error)
	}
	pods := st.Kernel.PodsCgroup
	if pods == "" {
		pods = "not found"
	}
	fmt.Fprintf(w, "node        cgroup %s, pods cgroup %s, filesystems %s\n", st.Kernel.Cgroup, pods, st.Kernel.Layout)
	if len(st.Kernel.Wakes) > 0 {
		fmt.Fprintf(w, "woken by    %s\n", strings.Join(st.Kernel.Wakes, ", "))
	}
	cond := "none"
	if len(st.Conditions) > 0 {
		cond = strings.Join(st.Conditions, ", ")
	}
	fmt.Fprintf(w, "conditions  %s\n", cond)
	if st.Held != "" {
		fmt.Fprintf(w, "held back   %s: %s\n", st.HeldBy, st.Held)
	}
	for _, f := range st.InFlight {
		fmt.Fprintf(w, "stopping    %s\n", f)
	}
	for _, a := range st.Alarms {
		fmt.Fprintf(w, "ALARM       %s\n", a)
	}
	if p := st.Orders.Pause; p != nil {
		fmt.Fprintf(w, "PAUSED      for another %s, by uid %d%s\n", age(st.PausedFor), p.By.UID, because(p.Reason))
	}
	if d := st.Orders.Drain; d != nil {
		fmt.Fprintf(w, "DRAINED     until undrain, by uid %d%s\n", d.By.UID, because(d.Reason))
	}
	if st.Live {
		fmt.Fprintf(w, "budget      %s\n", budgetLine(st))
	}
	if st.ConfigNote != "" {
		fmt.Fprintf(w, "config      %s\n", st.ConfigNote)
	}
	for _, m := range st.Warnings {
		fmt.Fprintf(w, "warning     %s\n", m)
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

func budgetLine(st *guard.Status) string {
	b := st.Budget
	s := fmt.Sprintf("hard %d of %d, soft %d of %d", b.Hard.Left, b.Hard.Burst, b.Soft.Left, b.Soft.Burst)
	if b.PerHour > 0 {
		s += fmt.Sprintf(", %d of %d stops left this hour", max(b.PerHour-b.LastHour, 0), b.PerHour)
	}
	return s
}

func printSignals(w io.Writer, signals []guard.SignalStatus) {
	t := newTable(w, "SIGNAL", "AVAILABLE", "CAPACITY", "HARD", "SOFT", "STATE")
	for _, s := range signals {
		if s.Status == "absent" && len(s.Thresholds) == 0 {
			continue
		}
		hard, soft, state := "-", "-", "ok"
		for _, th := range s.Thresholds {
			v := guard.FormatAmount(s.Signal, th.Amount)
			if s.Status != "ok" {
				v = th.Value // of what is not known
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
		available, capacity := guard.FormatAmount(s.Signal, s.Available), guard.FormatAmount(s.Signal, s.Capacity)
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

// age rounds a duration for people.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	default:
		return d.Round(time.Minute).String()
	}
}
