package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
)

func newRank(o *options) *cobra.Command {
	signal := policy.MemoryAvailable.String()
	cmd := &cobra.Command{
		Use:   "rank",
		Short: "Show who would be stopped first, and why",
		Long: `Show which pod would be stopped first for a signal, with the value of each rank
key, what a stop would free, and why the others are no candidates.

The running service is asked; without one the node is looked at directly.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := policy.ParseSignal(signal)
			if err != nil {
				return fmt.Errorf("--signal: %w", err)
			}
			r, err := o.rank(cmd.Context(), s)
			if err != nil {
				return classify(err)
			}
			if o.output == "json" {
				return printJSON(cmd.OutOrStdout(), r)
			}
			printRanking(cmd.OutOrStdout(), r)
			return nil
		},
	}
	signalFlag(cmd, &signal, "signal to rank for")
	o.outputFlag(cmd)
	return cmd
}

// signalFlag adds --signal, completed with the signals' names.
func signalFlag(cmd *cobra.Command, signal *string, usage string) {
	cmd.Flags().StringVarP(signal, "signal", "s", *signal, usage)
	_ = cmd.RegisterFlagCompletionFunc("signal", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, s := range policy.Signals() {
			names = append(names, s.String())
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

func (o *options) rank(ctx context.Context, s policy.Signal) (guard.Ranking, error) {
	r, err := guard.NewClient(o.dir()).Rank(ctx, s)
	if !errors.Is(err, guard.ErrNoService) {
		return r, err
	}
	cfg, err := o.load()
	if err != nil {
		return r, err
	}
	look, err := guard.OpenLook(ctx, cfg)
	if err != nil {
		return r, err
	}
	defer look.Close()
	return look.Rank(ctx, s)
}

func printRanking(w io.Writer, r guard.Ranking) {
	var keys []string
	for _, k := range r.Keys {
		keys = append(keys, k.String())
	}
	fmt.Fprintf(w, "%s: %s of %s available; ranked by %s, then size, younger, id\n\n", r.Signal,
		guard.FormatAmount(r.Signal, r.Available), guard.FormatAmount(r.Signal, r.Capacity), strings.Join(keys, ", "))
	printRanked(w, r.Signal, r.Pods)
}

func printRanked(w io.Writer, s policy.Signal, pods []guard.RankedView) {
	t := newTable(w, "#", "POD", "QOS", "PRIORITY", "USAGE", "REQUEST", "OVER", "FREES", "NOTE")
	for _, p := range pods {
		pos, usage, frees, over := "-", "unknown", "-", "-"
		if p.Position > 0 {
			pos = strconv.Itoa(p.Position)
		}
		if p.Known {
			usage, frees, over = guard.FormatUsage(s, p.Usage), guard.FormatUsage(s, p.Frees), "no"
			if p.Usage > p.Request {
				over = "yes"
			}
		}
		note := p.Excluded
		if note == "" && p.RequestSource != "" && p.Request > 0 {
			note = "request from " + p.RequestSource
		}
		priority := strconv.FormatInt(p.Priority, 10)
		if p.PrioritySource != "" {
			priority += " (" + p.PrioritySource + ")"
		}
		t.row(pos, p.Pod, p.QoS, priority, usage, guard.FormatUsage(s, p.Request), over, frees, note)
	}
	t.flush()
}
