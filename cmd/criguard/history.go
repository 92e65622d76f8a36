package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
)

func newHistory(o *options) *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show the last passes that did something, and why",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			passes, err := guard.NewClient(o.dir()).History(cmd.Context(), n)
			if err != nil {
				return classify(err)
			}
			if o.output == "json" {
				return printJSON(cmd.OutOrStdout(), guard.HistoryList{APIVersion: guard.APIVersion, Passes: passes})
			}
			printHistory(cmd.OutOrStdout(), passes)
			return nil
		},
	}
	cmd.Flags().IntVarP(&n, "number", "n", 20, "how many passes, the newest; 0 = all")
	o.outputFlag(cmd)
	return cmd
}

func printHistory(w io.Writer, passes []guard.Pass) {
	if len(passes) == 0 {
		fmt.Fprintln(w, "Nothing has happened yet.")
		return
	}
	t := newTable(w, "PASS", "TIME", "WAKE", "TOOK", "WHAT", "WHY")
	for i := range passes {
		p := &passes[i]
		id, at, took := fmt.Sprint(p.ID), p.Time.Local().Format("15:04:05.000"), p.Took.Round(10*time.Microsecond).String()
		wake := p.Wake
		for _, e := range tell(p) {
			t.row(id, at, wake, took, e.what, e.why)
			id, at, wake, took = "", "", "", ""
		}
	}
	t.flush()
}

// event is one thing that a pass did.
type event struct{ what, why string }

// tell puts a pass into words.
func tell(p *guard.Pass) []event {
	var es []event
	add := func(what, why string) { es = append(es, event{what, why}) }
	if c := p.Command; c != nil {
		by := "by itself"
		if c.By != nil {
			by = fmt.Sprintf("by uid %d", c.By.UID)
		}
		add(c.Command+" "+by, c.Reason)
	}
	if p.Changed {
		cond := p.Conditions.String()
		if p.Conditions == 0 {
			cond = "none"
		}
		var met []string
		for _, m := range p.Met {
			met = append(met, m.Threshold)
		}
		add("conditions: "+cond, strings.Join(met, ", "))
	}
	for _, r := range p.Reclaimed {
		add(fmt.Sprintf("reclaimed %s: %d removed, %s freed", strings.Join(r.Steps, ", "), r.Removed(), guard.FormatBytes(r.Freed)),
			r.Signal.String()+" in "+r.Took.Round(time.Millisecond).String())
	}
	if p.Stop != nil {
		what := fmt.Sprintf("stop %s (%s, grace %s)", p.Stop.Pod, p.Stop.Kind, p.Stop.Grace)
		if p.Stop.DryRun {
			what = "would " + what
		}
		add(what, p.Stop.Reason)
	}
	if p.Escalated != "" {
		add("end the grace period of "+p.Escalated, "hard threshold met")
	}
	for _, s := range p.Settled {
		result := "stopped " + s.Pod
		if !s.Result.Emptied {
			result = "NOT stopped: " + s.Pod
		}
		why := fmt.Sprintf("%s: empty after %s, effect after %s", s.Result.Method,
			s.Result.EmptiedIn.Round(100*time.Microsecond), s.Result.SettledIn.Round(time.Millisecond))
		if !s.Result.Moved && s.Signal != s.Kind { // a drain has no signal
			why += ", signal did not move"
		}
		if len(s.Result.Errors) > 0 {
			why += "; " + strings.Join(s.Result.Errors, "; ")
		}
		add(result, why)
	}
	if p.Held != "" {
		add("held back: "+p.Held, p.HeldBy)
	}
	if p.Alarm != "" {
		add("ALARM", p.Alarm)
	}
	return es
}
