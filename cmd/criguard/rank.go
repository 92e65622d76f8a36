package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/policy"
)

func newRank(o *options) *cobra.Command {
	signal := policy.MemoryAvailable.String()
	cmd := &cobra.Command{
		Use:   "rank",
		Short: "Show the eviction order, and why",
		Long: `Show which pod would be stopped first for a signal, with the value of each rank
key, what a stop would free, and why the others are not candidates. It lists those
last, ordered by the reason, then by usage, then by name.

It asks the running service. Without one, and for the disk usage of pods while no disk
is short, it inspects the node directly, which only root may do.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := parseSignal("--signal", signal)
			if err != nil {
				return err
			}
			r, err := o.rank(cmd, s)
			if err != nil {
				return err
			}
			o.noteUnused(cmd)
			if r.Stale != "" && r.ListedAt != nil && !o.JSON() {
				cli.Say(cmd.ErrOrStderr(), "note: the runtime does not answer, the pods are those of %s ago: %s\n", cli.Age(time.Duration(*r.ListedAt)), r.Stale)
			}
			return o.Print(cmd, r, func(w io.Writer) { printRanking(w, r) })
		},
	}
	signalFlag(cmd, &signal, "signal to rank for")
	o.OutputFlag(cmd)
	return cmd
}

// signalFlag adds --signal.
func signalFlag(cmd *cobra.Command, signal *string, usage string) {
	cmd.Flags().StringVarP(signal, "signal", "s", *signal, usage)
}

// parseSignal parses the name of a signal that a flag gives, and suggests one if it is wrong.
func parseSignal(flag, name string) (policy.Signal, error) {
	s, err := policy.ParseSignal(name)
	if like := config.SuggestSignal(name); err != nil && like != "" {
		return s, fmt.Errorf("%s %q: unknown signal: %s", flag, name, like)
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", flag, err)
	}
	return s, nil
}

// rank asks the service, or inspects the node directly. It notes on standard error why disk usage is unknown.
func (o *options) rank(cmd *cobra.Command, s policy.Signal) (api.Ranking, error) {
	ctx := cmd.Context()
	inspect := func(l *guard.Look) (api.Ranking, error) { return l.Rank(ctx, s) }
	return fetch(ctx, o, func(c *control.Client) (api.Ranking, error) {
		r, err := c.Rank(ctx, s)
		if err == nil && unmeasured(&r) {
			measured := func(l *guard.Look) (api.Ranking, error) {
				l.Protect(protectedIn(&r))
				return l.Rank(ctx, s)
			}
			looked, err := lookAsServed(ctx, o, c, measured)
			if err == nil {
				return looked, nil
			}
			if len(r.Pods) > 0 && !o.JSON() {
				who := ""
				if errors.Is(err, fs.ErrPermission) {
					who = " (only root can)"
				}
				cli.Say(cmd.ErrOrStderr(), "note: the service measures the pods' disk usage only while a disk is short, and measuring it directly%s failed: %s\n", who, err.Error())
			}
		}
		return r, err
	}, inspect)
}

// protectedIn returns the pods that operators protect by a ranking of the service, with the reasons.
func protectedIn(r *api.Ranking) map[string]string {
	reasons := map[string]string{}
	for i := range r.Pods {
		if p := &r.Pods[i]; strings.HasPrefix(p.Excluded, api.ProtectedBy) {
			reasons[p.Pod] = p.Excluded
		}
	}
	return reasons
}

// unmeasured reports whether a disk ranking has no pod's usage: the service measures disk usage
// only under disk pressure.
func unmeasured(r *api.Ranking) bool {
	return r.Signal.IsDisk() && !slices.ContainsFunc(r.Pods, func(p api.RankedView) bool { return p.Known })
}

func printRanking(w io.Writer, r api.Ranking) {
	left := cmp.Or(r.Unmeasured, "not there on this node")
	if r.Capacity > 0 {
		left = api.FormatAmount(r.Signal, r.Available) + " of " + api.FormatAmount(r.Signal, r.Capacity) + " available"
	}
	cli.Say(w, "%s: %s; ranked by %s, then size, younger, id\n\n", r.Signal, left, api.KeyNames(r.Signal, r.Keys))
	printRanked(w, r.Signal, r.Pods)
	if r.Need != nil {
		cli.Say(w, "\n%s.\n", words.Need(r.Need))
	}
	if r.Held != nil {
		cli.Say(w, "Held back: %s.\n", r.Held.Why())
	}
}

func printRanked(w io.Writer, s policy.Signal, pods []api.RankedView) {
	t := cli.NewTable(w, "#", "POD", "QOS", "PRIORITY", "USAGE", "REQUEST", "OVER BY", "FREES", "NOTE").Spare("QOS", "REQUEST", "FREES", "PRIORITY", "OVER BY")
	names := podNames(len(pods), func(i int) (pod, sandbox string) { return pods[i].Pod, pods[i].Sandbox })
	for i, p := range pods {
		pos, usage, frees, over := "-", p.FormatUsage(s), "-", "-"
		if p.Position > 0 {
			pos = strconv.Itoa(p.Position)
		}
		request := p.FormatRequest(s)
		if p.Known {
			frees = api.FormatUsage(s, p.Frees)
		}
		if p.Known && request != api.NoRequest {
			over = overBy(s, &p)
		}
		note := cmp.Or(p.Excluded, p.Standing, requestNote(s, &p))
		if p.Excluded == policy.ExcludedTooSmall && p.Known && p.Frees > 0 {
			note = "its stop would give too little back"
		}
		priority := strconv.FormatInt(p.Priority, 10)
		if p.PrioritySource != "" {
			priority += " (" + p.PrioritySource + ")"
		}
		t.Row(pos, names[i], p.QoS, priority, usage, request, over, frees, note)
	}
	t.Flush()
}

// podNames returns the names of n pods for people. Those that several sandboxes have get its ID, which a command takes.
func podNames(n int, of func(i int) (pod, sandbox string)) []string {
	names, count := make([]string, n), map[string]int{}
	for i := range names {
		names[i], _ = of(i)
		count[names[i]]++
	}
	for i, name := range names {
		if _, sandbox := of(i); count[name] > 1 {
			names[i] = fmt.Sprintf("%s (%.13s)", name, sandbox)
		}
	}
	return names
}

// requestNote says where a pod's memory request comes from, and that oom_score_adj cannot show a small one.
func requestNote(s policy.Signal, p *api.RankedView) string {
	switch {
	case p.RequestSource == "" || s.Resource() != policy.ResourceMemory:
		return ""
	case p.Request > 0:
		return "request from " + p.RequestSource
	case p.RequestSource == "oom_score_adj":
		return "request too small for oom_score_adj to show"
	}
	return ""
}

// overBy returns by how much a pod uses more than it requested, as the ranking counts it: never more than 0 for
// a Guaranteed pod. It is negative for a pod that uses less.
func overBy(s policy.Signal, p *api.RankedView) string {
	above := p.Usage - p.Request
	if !p.Over {
		above = min(above, 0)
	}
	if p.AtLeast {
		return "≥ " + api.FormatUsage(s, above)
	}
	return api.FormatUsage(s, above)
}
