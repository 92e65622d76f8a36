package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
)

func newCheck(o *options) *cobra.Command {
	var quiet, showOrigin bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration and print it with every default filled in",
		Long: `Check a configuration file (by default the one the service reads, with its
drop-ins) and print it with every default filled in. Every mistake in every file
is named at once, with its key, its value and the rule; exit code 2 says that
there is one.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := o.config
			if len(args) == 1 {
				path = args[0]
			}
			cfg, err := guard.LoadConfig(path, o.dropIns...)
			if err != nil {
				return &codeError{exitUsage, err, "every key is explained in config.example.toml"}
			}
			for _, note := range cfg.Notes() {
				fmt.Fprintln(cmd.ErrOrStderr(), "note: "+note)
			}
			out := cmd.OutOrStdout()
			switch {
			case quiet:
			case o.output == "json":
				return printJSON(out, guard.ConfigReport{APIVersion: guard.APIVersion, Files: cfg.Files, Keys: cfg.Origins()})
			case showOrigin:
				fmt.Fprint(out, cfg.EffectiveWithOrigins())
			default:
				fmt.Fprint(out, cfg.Effective())
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing when the configuration is good")
	cmd.Flags().BoolVar(&showOrigin, "show-origin", false, "say of each key in which file and line it is set")
	o.outputFlag(cmd)
	return cmd
}
