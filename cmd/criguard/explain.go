package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard"
)

func newExplain(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [PASS|last]",
		Short: "Show all that is known of one pass: what was seen, done, and why",
		Long: `Show all that is known of one pass, by default the last: the signals, the thresholds
that were met, the whole ranking of that moment, why the first was first, what the
stop freed, and what held the others back. "criguard history" lists the passes.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id := uint64(0)
			if len(args) == 1 && args[0] != "last" {
				var err error
				if id, err = strconv.ParseUint(args[0], 10, 64); err != nil || id == 0 {
					return &codeError{exitUsage, fmt.Errorf("explain pass %q: want its number, or last", args[0]), "`criguard history` lists the passes"}
				}
			}
			now := time.Now()
			passes, err := o.history(cmd.Context(), "", now)
			if err != nil {
				return err
			}
			e := words.Find(passes, id)
			if e == nil {
				return unknownPass(passes, id)
			}
			if o.output == "json" {
				return printJSON(cmd.OutOrStdout(), e)
			}
			printExplanation(cmd.OutOrStdout(), e, now)
			return nil
		},
	}
	o.outputFlag(cmd)
	return cmd
}

// unknownPass says which passes there are.
func unknownPass(passes []guard.Pass, id uint64) error {
	if len(passes) == 0 {
		return &codeError{exitUsage, fmt.Errorf("explain pass: nothing has happened yet"), "`criguard status` shows the node as it is now"}
	}
	first, last := passes[0].ID, passes[len(passes)-1].ID
	hint := fmt.Sprintf("there are passes %d to %d; `criguard history` lists them", first, last)
	if first == last {
		hint = fmt.Sprintf("there is pass %d alone", first)
	}
	return &codeError{exitUsage, fmt.Errorf("explain pass %d: not in the history", id), hint}
}

func printExplanation(w io.Writer, e *words.Explanation, now time.Time) {
	p := e.Pass
	fmt.Fprintf(w, "Pass %d, %s (%s): woken by %s, took %s\n\n", p.ID, p.Time.Local().Format("2006-01-02 15:04:05.000 MST"),
		words.Ago(p.Time, now), words.Line(p.Wake), p.Took.Round(10*time.Microsecond))
	for _, ev := range words.Tell(p) {
		fmt.Fprintf(w, "%s\n", words.Line(ev.What))
		if ev.Why != "" {
			fmt.Fprintf(w, "    %s\n", words.Line(ev.Why))
		}
	}
	if e.Effect != nil {
		what, how := words.Effect(e.Effect)
		fmt.Fprintf(w, "%s\n    %s\n", words.Line(what), words.Line(how))
		if freed := words.Freed(e.Effect); freed != "" {
			fmt.Fprintf(w, "    %s\n", freed)
		}
		fmt.Fprintf(w, "    found in pass %d\n", e.SettledBy)
	}
	for i := range p.Settled {
		if s := &p.Settled[i]; s.Pass != 0 && s.Pass != p.ID {
			fmt.Fprintf(w, "    %s was chosen in pass %d: criguard explain %d\n", words.Line(s.Pod), s.Pass, s.Pass)
		}
	}
	printReclaimed(w, p)
	printSeen(w, p)
	s, ok := words.Signal(p)
	if len(p.Ranked) == 0 || !ok {
		return
	}
	fmt.Fprintf(w, "\nRanked for %s at that moment\n\n", s)
	printRanked(w, s, p.Ranked)
	if p.RankedMore > 0 {
		fmt.Fprintf(w, "and %d more: only the last stops are kept with all\n", p.RankedMore)
	}
	fmt.Fprintln(w)
	if e.Decided != "" {
		fmt.Fprintf(w, "%s.\n", words.Line(e.Decided))
	}
	if len(e.Excluded) > 0 {
		var why []string
		for _, x := range e.Excluded {
			why = append(why, fmt.Sprintf("%d for %s", x.Pods, x.Why))
		}
		fmt.Fprintf(w, "No candidates: %s.\n", words.Line(strings.Join(why, ", ")))
	}
}

// printReclaimed names what was removed, or would be, and what would not go.
func printReclaimed(w io.Writer, p *guard.Pass) {
	t := newTable(w, "WHAT", "NAME", "SIZE", "", "WHY")
	rows, more := 0, 0
	for i := range p.Reclaimed {
		for j := range p.Reclaimed[i].Reports {
			r := &p.Reclaimed[i].Reports[j]
			done := "removed"
			if r.DryRun {
				done = "would be removed"
			}
			for _, it := range r.Removed {
				t.row(string(it.Kind), itemName(it), itemSize(it), done, it.Why)
			}
			for _, f := range r.Errors {
				t.row(string(f.Kind), cmp.Or(f.Name, f.ID), "-", "failed", f.Message)
			}
			rows, more = rows+len(r.Removed)+len(r.Errors), more+r.RemovedMore+r.ErrorsMore
		}
	}
	if rows == 0 {
		return
	}
	fmt.Fprintln(w)
	t.flush()
	if more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

// printSeen shows the signals, and the thresholds that were met.
func printSeen(w io.Writer, p *guard.Pass) {
	if len(p.Signals) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable(w, "SIGNAL", "AVAILABLE", "CAPACITY", "MET")
	for _, s := range p.Signals {
		if s.Status != "ok" {
			t.row(s.Signal.String(), "-", "-", s.Status)
			continue
		}
		t.row(s.Signal.String(), guard.FormatAmount(s.Signal, s.Available), guard.FormatAmount(s.Signal, s.Capacity), words.Met(p, s.Signal))
	}
	t.flush()
}
