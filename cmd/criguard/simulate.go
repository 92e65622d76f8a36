package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/simulate"
)

const traceHint = "`criguard record` writes a trace: one line of JSON per observation"

func newSimulate(o *options) *cobra.Command {
	var opt simulate.Options
	var other string
	cmd := &cobra.Command{
		Use:   "simulate TRACE",
		Short: "Run the decision logic over a trace, in virtual time",
		Long: `Run the service's decision logic over a trace ("-" is standard input) in virtual time,
exactly one pass per line, and print one JSON value per line: the conditions, what is
met, what is reclaimed and stopped, and what held a stop back. Then print a summary
to standard error: which pods were stopped and when, and what was held back.

With --config it shows what other thresholds would have done. With --compare it prints
instead what two configurations do, side by side: FILE replaces the configuration file
and counts more than the drop-ins, which otherwise apply to both. It reads nothing on the
node but the configuration, and changes nothing.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := o.load()
			if err != nil {
				return err
			}
			if note := o.leftOut(); note != "" {
				cli.Say(cmd.ErrOrStderr(), "note: %s\n", note)
			}
			cfgs := []config.Config{cfg}
			if other != "" {
				second, err := o.loadInstead(other)
				if err != nil {
					return err
				}
				cfgs = append(cfgs, second)
				for _, note := range overridden(&cfg, &second, o.fileOf(&cfg)) {
					cli.Say(cmd.ErrOrStderr(), "note: %s\n", note)
				}
			}
			in := io.NopCloser(cmd.InOrStdin())
			if args[0] != "-" {
				if in, err = os.Open(args[0]); err != nil {
					return cli.NewError(cli.ExitUsage, fmt.Errorf("simulate: %w", err), traceHint)
				}
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			report, err := simulated(cmd.Context(), cfgs, in, out, opt, [2]string{o.fileOf(&cfg), other})
			written := out.Flush()
			err = errors.Join(err, in.Close())
			switch { // also of the lines before a mistake: the last one is cut off if the node lost power
			case report == nil:
			case other != "":
				report(cmd.OutOrStdout())
			default:
				report(cmd.ErrOrStderr())
			}
			if written != nil {
				return fmt.Errorf("simulate %s: %w", args[0], written)
			}
			if err != nil {
				return cli.NewError(cli.ExitUsage, fmt.Errorf("simulate %s: %w", args[0], err), traceHint)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&opt.NoBudget, "no-budget", false, "switch budget, back-off and breaker off, for comparing with the kubelet")
	cmd.Flags().StringVar(&other, "compare", "", "another configuration `FILE`: print what both do, side by side")
	return cmd
}

// loadInstead reads the configuration with another file in place of its own. The file counts more than the drop-ins, so
// that the comparison shows what it sets.
func (o *options) loadInstead(file string) (config.Config, error) {
	paths := config.Paths{DropIns: o.dropIns}
	if o.config == "" && len(o.dropIns) == 0 {
		paths = config.DefaultPaths()
	}
	paths.File, paths.Optional, paths.FileLast = file, false, true
	return paths.Load()
}

// overridden says which values of the file that other was read with a drop-in would override, if the file replaced the
// configuration file.
func overridden(cfg, other *config.Config, replaced string) (notes []string) {
	file := other.Files[len(other.Files)-1]
	set := map[string]config.KeyOrigin{}
	for _, k := range other.Origins() {
		if k.File == file {
			set[k.Key] = k
		}
	}
	vendor := config.DefaultPaths().Vendor
	for _, k := range cfg.Origins() {
		dropIn := k.File != "" && k.File != replaced && filepath.Dir(k.File) != vendor
		if by, ok := set[k.Key]; ok && dropIn && !strings.Contains(k.Key, "]") && !reflect.DeepEqual(by.Value, k.Value) {
			notes = append(notes, fmt.Sprintf("in place of the configuration file, %s would not change %s, which %s sets", file, k.Key, k.Origin))
		}
	}
	return notes
}

// fileOf returns the file that loadInstead replaces in a configuration, if there is one.
func (o *options) fileOf(cfg *config.Config) string {
	if file := cmp.Or(o.config, config.DefaultPath); slices.Contains(cfg.Files, file) {
		return file
	}
	return "defaults"
}

// leftOut says which files of this node are left out, because another one is named; "" = none is.
func (o *options) leftOut() string {
	if o.config == "" || len(o.dropIns) > 0 {
		return ""
	}
	node, err := config.Load("")
	if err != nil {
		return "" // the file that is named does not need it
	}
	return leftOut(&node)
}

// leftOut says which drop-ins of a node are left out, because a file is named; "" = the node has none.
func leftOut(node *config.Config) string {
	dropIns := slices.DeleteFunc(slices.Clone(node.Files), func(file string) bool { return file == config.DefaultPath })
	if len(dropIns) == 0 {
		return ""
	}
	return "without the drop-ins of this node, because a file is named (--config-dir adds a directory of them): " + strings.Join(dropIns, ", ")
}

// simulated runs one configuration, writing its passes to out, or compares two by their names. It returns the function
// that prints the result, nil if there was no line without a mistake.
func simulated(ctx context.Context, cfgs []config.Config, in io.Reader, out io.Writer, opt simulate.Options, names [2]string) (func(io.Writer), error) {
	var sums []simulate.Summary
	var err error
	report := func(w io.Writer) { printComparison(w, names[0], names[1], &sums[0], &sums[1]) }
	if len(cfgs) == 1 {
		sums = make([]simulate.Summary, 1)
		sums[0], err = simulate.Run(ctx, cfgs[0], in, out, opt)
		report = func(w io.Writer) { printSummary(w, &sums[0]) }
	} else {
		sums, err = simulate.Compare(ctx, cfgs, in, opt)
	}
	if sums[0].Lines == 0 {
		return nil, err
	}
	return report, err
}

func printSummary(w io.Writer, s *simulate.Summary) {
	cli.Say(w, "%s over %s%s: %s\n", api.Count(s.Lines, "line"), cli.Short(s.Length), since(s), stopCount(s))
	if len(s.Stops) > 0 {
		t := cli.NewTable(w, "AT", "STOPPED", "FOR", "WHY")
		for _, stop := range s.Stops {
			t.Row(moment(s, stop.At), stop.Pod, stop.Signal+":"+stop.Kind, stop.Reason)
		}
		t.Flush()
	}
	if len(s.Holds) > 0 {
		t := cli.NewTable(w, "FROM", "TO", "HELD BACK", "BY")
		for _, h := range s.Holds {
			t.Row(moment(s, h.First), moment(s, h.Last), h.Threshold, h.Reason)
		}
		t.Flush()
	}
}

// printComparison prints the stops of both simulations in the order of time, and what held stops back.
func printComparison(w io.Writer, nameA, nameB string, a, b *simulate.Summary) {
	cli.Say(w, "%s over %s%s\n", api.Count(a.Lines, "line"), cli.Short(a.Length), since(a))
	t := cli.NewTable(w, "AT", nameA, nameB)
	stop := func(s *simulate.TimedStop) string { return "stop " + s.Pod + " for " + s.Signal + ":" + s.Kind }
	for i, j := 0, 0; i < len(a.Stops) || j < len(b.Stops); {
		inA := j == len(b.Stops) || i < len(a.Stops) && a.Stops[i].At <= b.Stops[j].At
		inB := i == len(a.Stops) || j < len(b.Stops) && b.Stops[j].At <= a.Stops[i].At
		row := []string{"", "-", "-"}
		if inA {
			row[0], row[1] = moment(a, a.Stops[i].At), stop(&a.Stops[i])
			i++
		}
		if inB {
			row[0], row[2] = moment(b, b.Stops[j].At), stop(&b.Stops[j])
			j++
		}
		t.Row(row...)
	}
	t.Row("", stopCount(a), stopCount(b))
	held := func(s *simulate.Summary, h *simulate.Hold) string {
		if h = s.Hold(h.Reason, h.Threshold); h == nil {
			return "-"
		}
		return moment(s, h.First) + " to " + moment(s, h.Last)
	}
	for i := range a.Holds {
		h := &a.Holds[i]
		t.Row(h.Threshold+" held back by "+h.Reason, held(a, h), held(b, h))
	}
	for i := range b.Holds {
		if h := &b.Holds[i]; a.Hold(h.Reason, h.Threshold) == nil {
			t.Row(h.Threshold+" held back by "+h.Reason, "-", held(b, h))
		}
	}
	t.Flush()
}

// since returns when a trace began, if it says so.
func since(s *simulate.Summary) string {
	if s.Began.IsZero() {
		return ""
	}
	return " from " + s.Began.Local().Format(time.DateTime)
}

// moment returns a time in a trace, with the wall clock if the trace has it.
func moment(s *simulate.Summary, at time.Duration) string {
	if s.Began.IsZero() {
		return cli.Short(at)
	}
	return cli.Short(at) + " (" + s.Began.Add(at).Local().Format(time.TimeOnly) + ")"
}

func stopCount(s *simulate.Summary) string {
	if len(s.Stops) == 0 {
		return "no stop"
	}
	return api.Count(len(s.Stops), "stop")
}
