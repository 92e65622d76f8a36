package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
)

// completionTimeout limits how long a shell waits for the service.
const completionTimeout = time.Second

// complete sets what the shell offers for the flags of every command, and for its arguments by the placeholders
// in its usage line: PASS and POD, and files for FILE and TRACE.
func complete(root *cobra.Command, o *options) {
	for _, cmd := range everyCommand(root) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if offer := offers(o, f); offer != nil {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, offer) // fails only for a flag that does not exist
			}
		})
		args := placeholders(cmd.Use)
		if slices.Contains(args, "FILE") || slices.Contains(args, "TRACE") {
			continue
		}
		cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, _ string) (all []string, _ cobra.ShellCompDirective) {
			if len(given) == 0 {
				ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
				defer cancel()
				if slices.Contains(args, "PASS") {
					all = append(all, o.passes(ctx)...)
				}
				if slices.Contains(args, "POD") {
					all = append(all, o.pods(ctx)...)
				}
			}
			return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		}
	}
}

// placeholders returns the words in capitals of a usage line.
func placeholders(use string) []string {
	words := strings.FieldsFunc(use, func(r rune) bool { return strings.ContainsRune("[]| ", r) })
	return slices.DeleteFunc(words, func(w string) bool { return w != strings.ToUpper(w) })
}

// offers returns what the shell offers for a flag of one command: nil for files.
func offers(o *options, f *pflag.Flag) cobra.CompletionFunc {
	switch f.Name {
	case "output":
		formats := []string{"table", "wide", "json"}
		if f.DefValue == "" { // fleet simulate prints both
			formats = []string{"table", "json"}
		}
		return cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)
	case "signal":
		return cobra.FixedCompletions(policy.SignalNames(), cobra.ShellCompDirectiveNoFileComp)
	case "pod":
		return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
			defer cancel()
			return o.pods(ctx), cobra.ShellCompDirectiveNoFileComp
		}
	case "compare", "from-kubelet":
		return nil
	}
	return cobra.NoFileCompletions
}

// passes returns the numbers of the last passes, newest first, each with what it did.
func (o *options) passes(ctx context.Context) []string {
	list, err := control.NewClient(o.dir()).Passes(ctx, api.HistoryQuery{N: 50})
	if err != nil {
		return []string{"last"}
	}
	var all []string
	for i := range slices.Backward(list.Passes) {
		what := ""
		if events := words.Events(&list.Passes[i]); len(events) > 0 {
			what = safetext.Line(events[0].What)
		}
		all = append(all, fmt.Sprintf("%d\t%s", list.Passes[i].ID, what))
	}
	return append(all, "last")
}

// pods returns the names of the listed pods, the first to be stopped first.
func (o *options) pods(ctx context.Context) (names []string) {
	r, err := control.NewClient(o.dir()).Rank(ctx, policy.MemoryAvailable)
	if err != nil {
		return nil
	}
	for i := range r.Pods {
		names = append(names, safetext.Line(r.Pods[i].Pod))
	}
	return names
}
