package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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

The running service is asked; without one, and for what pods use of a disk that is
not short, the node is looked at directly.`,
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
	if err == nil && unmeasured(&r) {
		if looked, lookErr := o.rankDirectly(ctx, s); lookErr == nil {
			return looked, nil
		}
	}
	if errors.Is(err, guard.ErrNoService) {
		return o.rankDirectly(ctx, s)
	}
	return r, err
}

// unmeasured tells of a ranking for a disk that it knows no pod's use: the service measures
// that only when the disk is short.
func unmeasured(r *guard.Ranking) bool {
	return r.Signal.IsDisk() && !slices.ContainsFunc(r.Pods, func(p guard.RankedView) bool { return p.Known })
}

func (o *options) rankDirectly(ctx context.Context, s policy.Signal) (r guard.Ranking, err error) {
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
	left := "not there on this node"
	if r.Capacity > 0 {
		left = guard.FormatAmount(r.Signal, r.Available) + " of " + guard.FormatAmount(r.Signal, r.Capacity) + " available"
	}
	fmt.Fprintf(w, "%s: %s; ranked by %s, then size, younger, id\n\n", r.Signal, left, strings.Join(keys, ", "))
	printRanked(w, r.Signal, r.Pods)
}

func printRanked(w io.Writer, s policy.Signal, pods []guard.RankedView) {
	byMemory := false
	t := newTable(w, "#", "POD", "QOS", "PRIORITY", "USAGE", "REQUEST", "OVER", "FREES", "NOTE")
	for _, p := range pods {
		byMemory = byMemory || p.ByMemory
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
	if byMemory {
		fmt.Fprintf(w, "Ranked %s.\n", guard.ByMemory)
	}
}
