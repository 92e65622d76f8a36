package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
)

func newCheck(o *options) *cobra.Command {
	var quiet, showOrigin bool
	var kubelet string
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration and print it with every default filled in",
		Long: `Check a configuration file (by default the one the service reads, with its
drop-ins) and print it with every default filled in. Every mistake in every file
is named at once, with its key, its value and the rule; exit code 2 says that
there is one.

With --from-kubelet it reads a kubelet's configuration instead, with --config-dir the
kubelet's drop-ins (*.conf) over it, and prints the TOML that means the same.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if kubelet != "" {
				if len(args) > 0 || o.config != "" {
					return errors.New("--from-kubelet names the file; leave the other one out")
				}
				text, err := guard.FromKubelet(kubelet, o.dropIns...)
				if err != nil {
					return &codeError{exitUsage, err, "the lines are those of the kubelet's configuration"}
				}
				fmt.Fprint(out, text)
				return nil
			}
			path := o.config
			if len(args) == 1 {
				path = args[0]
			}
			cfg, err := guard.LoadConfig(path, o.dropIns...)
			if err != nil {
				return &codeError{exitUsage, err, "`man criguard.toml` explains every key, and so does config.example.toml (/usr/share/doc/criguard)"}
			}
			for _, note := range cfg.Notes() {
				fmt.Fprintln(cmd.ErrOrStderr(), "note: "+note)
			}
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
	cmd.Flags().StringVar(&kubelet, "from-kubelet", "", "print what a kubelet's configuration means here, as of /var/lib/kubelet/config.yaml")
	o.outputFlag(cmd)
	for _, other := range []string{"quiet", "show-origin", "output"} {
		cmd.MarkFlagsMutuallyExclusive("from-kubelet", other)
	}
	return cmd
}
