package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/kubelet"
)

func newCheck(o *options) *cobra.Command {
	var quiet, showOrigin, exact, offline bool
	var fromKubelet string
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration and print it with every default filled in",
		Long: `Check a configuration file (by default the one the service reads, with its
drop-ins) and print it with every default filled in. It reports all mistakes
in all files at once, each with its key, its value and the rule.

It also looks at the node, notes settings that do not fit it and what it cannot check
because the runtime does not answer, and reports the hard thresholds that are met
now, for which a reload would stop a pod at once. In observe mode it reports what
enforce mode would do. For a threshold of a stall it watches for one stall_window.
--offline skips all this.

With --from-kubelet it reads a kubelet's configuration instead, and prints the TOML for
criguard: a file, a directory of drop-ins, or the configuration of k3s or RKE2 with its
kubelet-arg list. --config-dir names the kubelet's drop-ins (*.conf). If the kubelet has
no hard threshold for a signal, criguard's default stays; --exact switches it off.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if fromKubelet != "" {
				if len(args) > 0 || o.config != "" {
					return errors.New("--from-kubelet names the file; leave the other one out")
				}
				for _, other := range []string{"quiet", "show-origin", "output", "offline"} {
					if cmd.Flags().Changed(other) {
						return fmt.Errorf("--%s does not belong to --from-kubelet, which prints TOML", other)
					}
				}
				text, err := kubelet.Convert(kubelet.Options{File: fromKubelet, DropIns: o.dropIns, Exact: exact})
				if err != nil {
					return cli.NewError(cli.ExitUsage, err, "the lines are those of the kubelet's configuration")
				}
				fmt.Fprint(out, text)
				return nil
			}
			if exact {
				return errors.New("--exact belongs to --from-kubelet")
			}
			if len(args) == 1 {
				if o.config != "" {
					return cli.Misused(cmd, errors.New("FILE and --config name two files: leave one out"))
				}
				if o.config = args[0]; o.config == "" { // not the default file in place of one
					return cli.Misused(cmd, errors.New("FILE is empty: name a file, or leave it out"))
				}
			}
			cfg, err := o.load()
			if err != nil {
				return err
			}
			notes := cfg.Notes()
			if note := o.leftOut(); note != "" {
				notes = append(notes, note)
			}
			var met []api.MetNow
			if !offline {
				var lookErr error
				var onNode []string
				if met, onNode, lookErr = onThisNode(cmd.Context(), cfg); lookErr != nil {
					onNode = []string{"the node was not checked: " + lookErr.Error()}
				}
				notes = append(notes, onNode...)
			}
			asJSON := o.JSON() && (!quiet || len(met) > 0)
			switch {
			case asJSON:
				report := config.Report{APIVersion: api.APIVersion, Files: append([]string{}, cfg.Files...), Keys: cfg.Origins(), Notes: notes}
				err = cli.PrintJSON(out, checkReport{report, met})
			case quiet:
			case showOrigin:
				fmt.Fprint(out, cfg.EffectiveWithOrigins())
			default:
				fmt.Fprint(out, cfg.Effective())
			}
			// The findings come last, so that a terminal still shows them.
			if !asJSON && !quiet {
				for _, note := range notes {
					cli.Say(cmd.ErrOrStderr(), "note: %s\n", note)
				}
			}
			for _, m := range met {
				cli.Say(cmd.ErrOrStderr(), "%s\n", m)
			}
			if len(met) > 0 && cfg.Mode == config.ModeObserve {
				cli.Say(cmd.ErrOrStderr(), "mode is \"observe\": this is only logged until it is \"enforce\"\n")
			}
			if err == nil && len(met) > 0 {
				err = cli.Finding()
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only mistakes and hard thresholds that are met now; with -o json, the report only if there are any")
	cmd.Flags().BoolVar(&showOrigin, "show-origin", false, "show the file and line that set each key")
	cmd.Flags().StringVar(&fromKubelet, "from-kubelet", "", "print what a kubelet's configuration means here, as of /var/lib/kubelet/config.yaml or /etc/rancher/k3s/config.yaml")
	cmd.Flags().BoolVar(&exact, "exact", false, "with --from-kubelet: switch off what the kubelet has no threshold for")
	cmd.Flags().BoolVar(&offline, "offline", false, "check the files alone, not the node")
	o.OutputFlag(cmd)
	return cmd
}

// checkReport is the JSON of a check.
type checkReport struct {
	config.Report
	MetNow []api.MetNow `json:"met_now,omitempty"` // hard thresholds that the node meets now
}

// onThisNode returns the hard thresholds that the node meets now, also those of a configuration in observe mode,
// before its mode is changed, and notes about settings that do not fit the node. It checks the signals that it
// can read: without a runtime, the pods and the runtime's filesystems are unknown.
func onThisNode(ctx context.Context, cfg config.Config) (met []api.MetNow, notes []string, err error) {
	cfg.Mode = config.ModeEnforce
	l, err := guard.OpenLook(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	return l.MetNow(ctx), l.Notes(), nil
}
