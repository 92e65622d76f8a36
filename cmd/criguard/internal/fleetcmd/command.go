package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/config"
	"github.com/criguard/criguard/guard/fleet/simulate"
)

const (
	fleetHint      = "a simulation uses only [rates] of fleet.toml, or their defaults without a file"
	fleetTraceHint = `a trace has one JSON value per line, such as {"at":"10s","members":{"z1":12},"wanting":{"z1":7}}; see ` + "`criguard fleet simulate --help`"
)

// fleetOptions are the flags of the commands below fleet.
type fleetOptions struct {
	*options
	path      string // of fleet.toml; "" = the default
	cert, key string // an operator's
}

func newFleet(o *options) *cobra.Command {
	f := &fleetOptions{options: o}
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Permits for soft stops in a fleet of nodes",
		Long: `Permits for soft stops in a fleet of nodes: a threshold that is wrong on every node must
not stop the same workload everywhere at once. Hard thresholds never wait for a permit.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVarP(&f.path, "config", "c", "", "configuration of the fleet (default "+fleet.DefaultPath+", where there is one)")
	cmd.PersistentFlags().VarP(otherFlag("the endpoints of etcd are in fleet.toml"), "endpoint", "r", "of the commands that are not below fleet")
	cmd.PersistentFlags().Var(otherFlag("fleet.toml has no drop-ins"), "config-dir", "of the commands that are not below fleet")
	for _, name := range []string{"endpoint", "config-dir"} {
		cmd.PersistentFlags().Lookup(name).Hidden = true
	}
	cmd.AddCommand(
		newFleetAgent(f), newFleetStatus(f), newFleetCheck(f), newFleetPause(f), newFleetResume(f), newFleetForget(f),
		newFleetSimulate(&f.path),
	)
	return cmd
}

// otherFlag refuses every value of a flag that only other commands have. It says why.
type otherFlag string

// Set returns the reason.
func (f otherFlag) Set(string) error { return errors.New(string(f)) }

// String returns no value.
func (otherFlag) String() string { return "" }

// Type names the type of the value in the help.
func (otherFlag) Type() string { return "string" }

func newFleetSimulate(path *string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "simulate TRACE",
		Short: "Run a fleet's rates over a trace, in virtual time",
		Long: `Run the rates of a fleet over a trace ("-" is standard input) in virtual time, and print
one JSON value per line: the states and rates of the zones, and which requests are
granted, held or out of patience. Then print a summary to standard error.

Each line of a trace is decided on its own: first slots and patience that end by its
time, then "withdraw", then "requests", then grants in the order of the requests. Counts
that a line leaves out keep their last values:

  {"at":"10s","members":{"z1":12},"wanting":{"z1":7},
   "requests":[{"node":"n1","zone":"z1","workload":"shop/web"}],"withdraw":["n2"]}

Requests are served in their order, while the nodes of a real fleet ask at random times.`,
		Args: cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			if output != "" && output != "json" && output != "table" {
				return fmt.Errorf("--output %q: want table or json", output)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			rates, err := config.LoadRates(*path)
			if err != nil {
				return &codeError{exitUsage, err, fleetHint}
			}
			in := io.NopCloser(cmd.InOrStdin())
			if args[0] != "-" {
				if in, err = os.Open(args[0]); err != nil {
					return &codeError{exitUsage, fmt.Errorf("fleet simulate: %w", err), fleetTraceHint}
				}
			}
			lines := cmd.OutOrStdout()
			if output == "table" {
				lines = io.Discard
			}
			out := bufio.NewWriter(lines)
			sum, err := simulate.Run(cmd.Context(), rates, in, out)
			if err = errors.Join(err, out.Flush(), in.Close()); err != nil {
				return &codeError{exitUsage, fmt.Errorf("fleet simulate %s: %w", args[0], err), fleetTraceHint}
			}
			switch output {
			case "table":
				printFleetSummary(cmd.OutOrStdout(), &sum)
			case "":
				printFleetSummary(cmd.ErrOrStderr(), &sum)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json: only the lines; table: only the summary")
	return cmd
}

func printFleetSummary(w io.Writer, s *simulate.Summary) {
	granted := s.Granted()
	say(w, "%s over %s: %d granted, %d out of patience, %d still waiting\n", api.Count(s.Lines, "line"), short(s.Length), granted, len(s.Ended)-granted, s.Waiting)
	if len(s.Ended) == 0 {
		return
	}
	t := newTable(w, "AT", "NODE", "ZONE", "WORKLOAD", "RESULT", "AFTER")
	for _, e := range s.Ended {
		t.row(short(e.At), e.Node, e.Zone, e.Workload, e.Result, short(e.Waited))
	}
	t.flush()
}
