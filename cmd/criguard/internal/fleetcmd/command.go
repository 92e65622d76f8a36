package fleetcmd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/config"
	"github.com/criguard/criguard/guard/fleet/simulate"
	"github.com/criguard/criguard/guard/rundir"
)

const (
	ratesHint = "a simulation uses only [rates] of fleet.toml, or their defaults without a file"
	traceHint = `a trace has one JSON value per line, such as {"at":"10s","members":{"z1":12},"wanting":{"z1":7}}; see ` + "`criguard fleet simulate --help`"
)

// Options connect the commands to the rest of the binary.
type Options struct {
	Dir     func() rundir.Dir  // the run directory of the service to ask
	OwnDir  func() rundir.Dir  // the run directory of the agent itself
	Prepare func(memory int64) // makes a service fit to run beside the pods, with a soft limit in bytes
}

// options are the flags of the commands below fleet.
type options struct {
	Options
	cli.Output

	path      string // of fleet.toml; "" = the default
	cert, key string // an operator's
}

// New returns the command fleet.
func New(o Options) *cobra.Command {
	f := &options{Options: o}
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
		newAgent(f), newStatus(f), newCheck(f), newPause(f), newResume(f), newForget(f),
		newSimulate(&f.path),
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

func newSimulate(path *string) *cobra.Command {
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
				return cli.NewError(cli.ExitUsage, err, ratesHint)
			}
			in := io.NopCloser(cmd.InOrStdin())
			if args[0] != "-" {
				if in, err = os.Open(args[0]); err != nil {
					return cli.NewError(cli.ExitUsage, fmt.Errorf("fleet simulate: %w", err), traceHint)
				}
			}
			lines := cmd.OutOrStdout()
			if output == "table" {
				lines = io.Discard
			}
			out := bufio.NewWriter(lines)
			sum, err := simulate.Run(cmd.Context(), rates, in, out)
			if err = errors.Join(err, out.Flush(), in.Close()); err != nil {
				return cli.NewError(cli.ExitUsage, fmt.Errorf("fleet simulate %s: %w", args[0], err), traceHint)
			}
			switch output {
			case "table":
				printSummary(cmd.OutOrStdout(), &sum)
			case "":
				printSummary(cmd.ErrOrStderr(), &sum)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json: only the lines; table: only the summary")
	return cmd
}

func printSummary(w io.Writer, s *simulate.Summary) {
	granted := s.Granted()
	cli.Say(w, "%s over %s: %d granted, %d out of patience, %d still waiting\n", api.Count(s.Lines, "line"), cli.Short(s.Length), granted, len(s.Ended)-granted, s.Waiting)
	if len(s.Ended) == 0 {
		return
	}
	t := cli.NewTable(w, "AT", "NODE", "ZONE", "WORKLOAD", "RESULT", "AFTER").Spare("ZONE", "AFTER")
	for _, e := range s.Ended {
		t.Row(cli.Short(e.At), e.Node, e.Zone, e.Workload, e.Result, cli.Short(e.Waited))
	}
	t.Flush()
}
