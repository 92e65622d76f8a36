package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/fleetcmd"
	"github.com/criguard/criguard/cri/socket"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/rundir"
)

// options are the flags that every command has.
type options struct {
	cli.Output

	config   string
	dropIns  []string
	endpoint string
	runDir   string
	noted    string // the last note about the history that was printed
	served   bool   // the service has answered, see fetch
}

func newRoot() *cobra.Command {
	var o options
	var showVersion bool
	root := &cobra.Command{
		Use:           "criguard",
		Short:         "Keep a container node alive, through the CRI socket alone",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				fmt.Fprint(cmd.OutOrStdout(), versionLine())
				return nil
			}
			return cmd.Help()
		},
	}
	// The library's own flag needs a template for this line. With one, the linker keeps every exported method of the program,
	// because a template may call it.
	root.Flags().BoolVarP(&showVersion, "version", "v", false, "version for criguard")
	f := root.PersistentFlags()
	f.StringVarP(&o.config, "config", "c", "", "configuration file (default "+config.DefaultPath+", where there is one)")
	f.StringArrayVar(&o.dropIns, "config-dir", nil,
		"directory of drop-ins, *.toml; may be repeated, the last wins (default, without --config: /usr/lib, /etc and /run/criguard/config.d)")
	f.StringVarP(&o.endpoint, "endpoint", "r", "", "CRI socket, as unix:///path or /path (default: [runtime] endpoint, /etc/crictl.yaml, then the known sockets)")
	f.StringVar(&o.runDir, "run-dir", "", "directory of socket, lock and state (default $RUNTIME_DIRECTORY or "+string(rundir.Default)+")")
	root.AddCommand(
		newRun(&o), newStatus(&o), newRank(&o), newHistory(&o), newExplain(&o), newReport(&o), newCheck(&o),
		newPrune(&o), newImages(&o), newSimulate(&o), newRecord(&o), newTop(&o), newReload(&o), newPause(&o), newResume(&o), newDrain(&o), newUndrain(&o),
		newStop(&o), newProtect(&o), newUnprotect(&o),
		fleetcmd.New(fleetcmd.Options{Dir: o.dir, OwnDir: o.ownDir, Prepare: prepare}), newMetrics(&o), newVersion(),
	)
	complete(root, &o)
	explainUsage(root)
	listExitCodes(root)
	return root
}

// load reads the configuration that the flags name.
func (o *options) load() (config.Config, error) {
	if _, err := socket.Path(o.endpoint); o.endpoint != "" && err != nil {
		return config.Config{}, fmt.Errorf("--endpoint %q: want unix:///path or /path", o.endpoint)
	}
	cfg, err := config.Load(o.config, o.dropIns...)
	if err != nil {
		return cfg, err
	}
	cfg.Dir = o.dir()
	if o.endpoint != "" {
		cfg.Runtime.Endpoint = o.endpoint
	}
	return cfg, nil
}

// dir returns the run directory of the service to ask.
func (o *options) dir() rundir.Dir { return rundir.FindService(o.runDir) }

// ownDir returns the run directory of a command that is a service itself.
func (o *options) ownDir() rundir.Dir { return rundir.Find(o.runDir) }
