package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/guard/control"
)

func newReload(o *options) *cobra.Command {
	c := api.Command{Command: api.CommandReload}
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Reload the configuration of the service and print the verdict",
		Long: `Reload the configuration of the service, as ` + "`systemctl reload criguard`" + ` does, and print
what has changed. A configuration that meets a hard threshold at once, or one that cannot
be checked, is held for 30 seconds, while the old one stays in force, and then put in force;
--now, or a second ` + "`criguard reload`" + `, does not wait.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := control.NewClient(o.dir()).Command(cmd.Context(), c)
			if errors.Is(err, api.ErrRefused) {
				return cli.NewError(cli.ExitUsage, rejected(err), "correct this, try it with `criguard check`, and reload again")
			}
			if err != nil {
				return err
			}
			o.served = true
			o.noteUnused(cmd)
			err = o.Print(cmd, answer, func(w io.Writer) { printMessage(w, answer) })
			if err == nil && len(answer.MetNow) > 0 {
				err = cli.Finding()
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&c.Now, "now", false, "put hard thresholds in force even if they are met at once, or may be")
	o.OutputFlag(cmd)
	return cmd
}

// rejected returns the error for a configuration that the service refuses, with one line per mistake.
func rejected(refusal error) error {
	mistakes := strings.TrimPrefix(refusal.Error(), api.ErrRefused.Error()+": ")
	return fmt.Errorf("%w, the old one stays in force:\n  %s", schema.ErrInvalid, strings.ReplaceAll(mistakes, "\n", "\n  "))
}
