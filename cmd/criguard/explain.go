package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard/api"
)

func newExplain(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [PASS|NAMESPACE/NAME|last]",
		Short: "Show why a pod was stopped, or one pass in detail",
		Long: `Show one pass in detail: the signals, the thresholds that were met, the whole
ranking of that moment, how the victim was chosen, what the stop freed, and why the
others were not stopped.

Without an argument, it shows the last stop; with a pod, that pod's last stop; with "last",
the last pass, whatever it did. A pod's name alone means the pod in any namespace.
"criguard history" lists the passes.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			now := time.Now()
			if len(args) == 1 && args[0] == "" { // not the last stop in place of a pod's
				return cli.Misused(cmd, errors.New("the argument is empty: name a pass or a pod, or leave it out"))
			}
			e, err := o.explanation(cmd, strings.Join(args, ""))
			if err != nil {
				return err
			}
			return o.Print(cmd, e, func(w io.Writer) { printExplanation(w, e, now) })
		},
	}
	o.OutputFlag(cmd)
	return cmd
}

// explanation explains what the argument names: a pass, "last", a pod's last stop, or "" for the last stop of
// any pod.
func (o *options) explanation(cmd *cobra.Command, arg string) (*words.Explanation, error) {
	id, err := strconv.ParseUint(arg, 10, 64)
	switch {
	case arg == "last":
	case arg == "" || err != nil && isPod(arg):
		return o.explainStop(cmd, arg)
	case id == 0 || err != nil:
		return nil, cli.NewError(cli.ExitUsage, fmt.Errorf("explain %q: want the number of a pass, a pod as namespace/name, or last", arg), "`criguard history` lists the passes")
	}
	q := api.HistoryQuery{From: id} // later passes record how this pass's stop ended
	if id == 0 {
		q.N = 1
	}
	list, err := o.history(cmd, q)
	if err != nil {
		return nil, err
	}
	if e := words.Find(list.Passes, id); e != nil && e.Pass.Stop == nil {
		return e, nil
	} else if e != nil { // earlier passes have the stops of the same workload
		earlier, err := o.history(cmd, api.HistoryQuery{Since: e.Pass.Time.Add(-time.Hour)})
		if err != nil {
			return nil, err
		}
		// Of the later ones, it lacks those since the clock was set back.
		earlier.Passes = slices.DeleteFunc(earlier.Passes, func(p api.Pass) bool { return p.ID >= e.Pass.ID })
		return words.Find(append(earlier.Passes, list.Passes...), id), nil
	}
	if list, err = o.history(cmd, api.HistoryQuery{}); err != nil {
		return nil, err
	}
	return nil, unknownPass(list.Passes, id)
}

// explainStop explains the last stop of a pod, or of any pod if pod is "". If no pod was stopped, it explains
// the last pass.
func (o *options) explainStop(cmd *cobra.Command, pod string) (*words.Explanation, error) {
	list, err := o.history(cmd, api.HistoryQuery{})
	if err != nil {
		return nil, err
	}
	switch e := words.FindStop(list.Passes, pod); {
	case e != nil:
		return e, nil
	case pod != "":
		return nil, cli.NewError(cli.ExitUsage, fmt.Errorf("explain %s: the history has no stop of this pod", pod), "`criguard history --stops` lists the stops")
	case len(list.Passes) == 0:
		return &words.Explanation{APIVersion: api.APIVersion}, nil
	default:
		if !o.JSON() {
			cli.Say(cmd.ErrOrStderr(), "note: no pod was stopped, this is the last pass\n")
		}
		return words.Find(list.Passes, 0), nil
	}
}

// unknownPass names the passes that are in the history.
func unknownPass(passes []api.Pass, id uint64) error {
	if len(passes) == 0 {
		return cli.NewError(cli.ExitUsage, fmt.Errorf("explain pass: the history has no pass"), "`criguard status` shows the node as it is now")
	}
	first, last := passes[0].ID, passes[len(passes)-1].ID
	hint := fmt.Sprintf("there are passes %d to %d; `criguard history` lists them", first, last)
	if first == last {
		hint = fmt.Sprintf("there is pass %d alone", first)
	}
	return cli.NewError(cli.ExitUsage, fmt.Errorf("explain pass %d: not in the history", id), hint)
}

func printExplanation(w io.Writer, e *words.Explanation, now time.Time) {
	p := e.Pass
	if p == nil {
		printHistory(w, nil, now)
		return
	}
	cli.Say(w, "Pass %d, %s (%s): woken by %s, took %s\n\n", p.ID, p.Time.Local().Format("2006-01-02 15:04:05.000 MST"),
		words.Ago(p.Time, now), p.Wake, p.Took.Round(10*time.Microsecond))
	for _, ev := range words.Events(p) {
		cli.Say(w, "%s\n", ev.What)
		if ev.Why != "" {
			cli.Say(w, "    %s\n", ev.Why)
		}
	}
	if e.Effect != nil {
		what, how := words.Effect(e.Effect)
		cli.Say(w, "%s\n    %s\n", what, how)
		if freed := words.Freed(e.Effect); freed != "" {
			cli.Say(w, "    %s\n", freed)
		}
		cli.Say(w, "    found in pass %d\n", e.SettledBy)
	}
	if again := e.Again(now); again != "" {
		cli.Say(w, "%s.\n", again)
	}
	for i := range p.Settled {
		if s := &p.Settled[i]; s.Pass != 0 && s.Pass != p.ID {
			cli.Say(w, "    %s was chosen in pass %d: criguard explain %d\n", s.Pod, s.Pass, s.Pass)
		}
	}
	printReclaimed(w, p)
	printSeen(w, p)
	s, ok := words.Signal(p)
	if len(p.Ranked) == 0 || !ok {
		return
	}
	cli.Say(w, "\nRanked for %s at that moment\n\n", s)
	printRanked(w, s, p.Ranked)
	if p.RankedMore > 0 {
		cli.Say(w, "and %d more: only the last stops are kept with all\n", p.RankedMore)
	}
	fmt.Fprintln(w)
	if p.Need != nil {
		cli.Say(w, "%s.\n", words.Need(p.Need))
	}
	if e.Decided != "" {
		cli.Say(w, "%s.\n", e.Decided)
	}
	if len(e.Excluded) > 0 {
		var why []string
		for _, x := range e.Excluded {
			why = append(why, fmt.Sprintf("%d (%s)", x.Pods, x.Why))
		}
		cli.Say(w, "Not candidates: %s.\n", strings.Join(why, ", "))
	}
}

// printReclaimed lists what was removed, or would be in a dry run, and each failed removal.
func printReclaimed(w io.Writer, p *api.Pass) {
	t := cli.NewTable(w, "WHAT", "NAME", "SIZE", "RESULT", "WHY")
	rows, more := 0, 0
	for i := range p.Reclaimed {
		for j := range p.Reclaimed[i].Reports {
			r := &p.Reclaimed[i].Reports[j]
			done := "removed"
			if r.DryRun {
				done = "would be removed"
			}
			for _, it := range r.Removed {
				t.Row(string(it.Kind), itemName(it), itemSize(it), done, it.Why)
			}
			for _, f := range r.Errors {
				t.Row(string(f.Kind), cmp.Or(f.Name, f.ID), "-", "failed", f.Message)
			}
			rows, more = rows+len(r.Removed)+len(r.Errors), more+r.RemovedMore+r.ErrorsMore
		}
	}
	if rows == 0 {
		return
	}
	fmt.Fprintln(w)
	t.Flush()
	if more > 0 {
		cli.Say(w, "and %d more\n", more)
	}
}

// printSeen shows the signals and the thresholds that were met.
func printSeen(w io.Writer, p *api.Pass) {
	if len(p.Signals) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := cli.NewTable(w, "SIGNAL", "AVAILABLE", "CAPACITY", "MET").Spare("CAPACITY")
	for _, s := range p.Signals {
		if s.Status != "ok" {
			t.Row(s.Signal.String(), "-", "-", s.Status)
			continue
		}
		t.Row(s.Signal.String(), api.FormatAmount(s.Signal, s.Available), api.FormatAmount(s.Signal, s.Capacity), words.Met(p, s.Signal))
	}
	t.Flush()
}
