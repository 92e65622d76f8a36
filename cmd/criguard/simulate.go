package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
)

const traceHint = "`criguard record` writes a trace: a line of JSON for each look at the node"

func newSimulate(o *options) *cobra.Command {
	var opt guard.SimulateOptions
	cmd := &cobra.Command{
		Use:   "simulate TRACE",
		Short: "Run the real pass over a trace, in virtual time",
		Long: `Run the real pass over a trace ("-" is standard input) in virtual time, exactly
one pass per line, and print one JSON value per line: the conditions, what is
met, what is reclaimed and stopped, and what held a stop back.

With --config it answers what other thresholds would have done. Nothing on the
node is looked at or touched.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := o.load()
			if err != nil {
				return err
			}
			in := io.NopCloser(cmd.InOrStdin())
			if args[0] != "-" {
				if in, err = os.Open(args[0]); err != nil {
					return &codeError{exitUsage, fmt.Errorf("simulate: %w", err), traceHint}
				}
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			err = guard.Simulate(cmd.Context(), cfg, in, out, opt)
			if err = errors.Join(err, out.Flush(), in.Close()); err != nil {
				return &codeError{exitUsage, fmt.Errorf("simulate %s: %w", args[0], err), traceHint}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&opt.NoBudget, "no-budget", false, "switch budget, back-off and breaker off, for comparing with the kubelet")
	return cmd
}
