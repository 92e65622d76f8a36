package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/top"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/policy"
)

// minInterval keeps the view from loading the node that it shows.
const minInterval = 100 * time.Millisecond

func newTop(o *options) *cobra.Command {
	signal := policy.MemoryAvailable.String()
	interval := time.Second
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the signals, the ranking and the actions, live",
		Long: `Watch, live, the signals against their thresholds, the pods in the order in which
they would be stopped, and the last passes that did something. Press ? for the keys.

It asks the running service. Without one, it inspects the node directly.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := parseSignal("--signal", signal)
			if err != nil {
				return err
			}
			if interval < minInterval {
				return fmt.Errorf("--interval %s: must be %s at least", interval, minInterval)
			}
			return o.top(cmd, top.Options{Signal: s, Interval: interval, Colour: top.Colour(), ASCII: cli.ASCII()})
		},
	}
	signalFlag(cmd, &signal, "signal to rank the pods for at first")
	cmd.Flags().DurationVarP(&interval, "interval", "i", interval, "minimum time between two observations")
	return cmd
}

// top shows the node until the user quits.
func (o *options) top(cmd *cobra.Command, opt top.Options) (err error) {
	ctx := cmd.Context()
	screen := os.Stdout //nolint:forbidigo // package top makes what it draws safe
	if err := top.CheckTTY(os.Stdin, screen); err != nil {
		return cli.NewError(cli.ExitUsage, err, "`criguard status` and `criguard rank` print once, to anything")
	}
	src := &topSource{options: o, client: control.NewClient(o.dir())}
	defer src.close()
	st, passes, err := src.Status(ctx)
	if err != nil {
		return err
	}
	o.served = src.served.Load()
	o.noteUnused(cmd) // seen again once the view has ended
	m := top.NewModel(opt, st, time.Now(), src.before(ctx)...)
	m.Happen(passes)
	tty, err := top.OpenTTY(os.Stdin, screen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tty.Close()) }()
	return top.Run(ctx, tty, src, m)
}
