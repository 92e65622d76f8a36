package fleetcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/guard/fleet/config"
	"github.com/criguard/criguard/guard/fleet/etcd"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/systemd"
)

const (
	configHint  = "fleet.example.toml (/usr/share/doc/criguard) explains every key; --config of `criguard fleet` names fleet.toml, not config.toml"
	noFleetHint = "docs/fleet.md (/usr/share/doc/criguard) shows how to set up a fleet; --config names another file"
)

func newAgent(o *options) *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent, which asks the fleet for permits",
		Long: `Run the agent: answer the node's guard on a unix socket, and ask etcd for the permits of
soft stops. It needs no privileges. systemd passes the socket (criguard-fleet.socket);
--socket opens one, for an agent that is started by hand. It re-reads its certificate
and key with each connection. A change of fleet.toml needs a restart.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, node, client, err := o.open()
			if err != nil {
				return err
			}
			o.Prepare(agentMemory)
			// The garbage collector starts a thread for each processor, and the unit bounds their number.
			runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), agentProcessors))
			l, err := agentListener(socket)
			if err != nil {
				return err
			}
			handler, flush := systemd.NewHandler(slog.LevelInfo)
			defer flush()
			log := slog.New(safetext.NewHandler(handler))
			notifier, err := systemd.NewNotifier()
			if err != nil {
				log.Warn("sd_notify failed", systemd.EventKey, systemd.EventDegraded, "reason", err.Error())
			}
			return agent.Serve(cmd.Context(), agent.ServeOptions{
				Agent: agent.Options{
					Fleet: cfg.Fleet, Zone: cfg.Zone, Node: node,
					Client: client, Disconnect: client.Close, Rates: cfg.Rates, Soft: defaultSoft(),
					Rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Now: cgroup.BootTime,
				},
				Listener: l, Dir: string(o.OwnDir()), Log: log, Notifier: notifier,
			})
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "open a socket at this path instead of the one that systemd passes")
	return cmd
}

// defaultSoft returns the default of the guard's [budget] soft, until the guard has sent its own.
func defaultSoft() policy.Bucket { return policy.Bucket{Burst: 2, Every: 5 * time.Minute} }

// agentProcessors is how many processors an agent uses at most.
const agentProcessors = 2

// agentMemory is the soft limit of an agent's memory in bytes. GOMEMLIMIT overrides it.
const agentMemory = 20 << 20

// agentListener returns the socket that systemd passed, or opens one.
func agentListener(path string) (net.Listener, error) {
	if path == "" {
		l, err := systemd.Listener()
		if errors.Is(err, systemd.ErrNoSocket) {
			return nil, cli.NewError(cli.ExitUsage, err, "`systemctl start criguard-fleet.socket` starts the agent; --socket opens a socket by hand")
		}
		return l, err
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("open %s: another agent answers on it", path)
	}
	// A socket that an agent left which was killed.
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove stale socket: %w", err)
		}
	}
	l, err := net.Listen("unix", path) // mode 0600, because of the umask
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	return l, nil
}

// load reads the configuration, with the certificate of the flags, and returns the node's name in the fleet.
func (o *options) load() (cfg fleet.Config, node string, err error) {
	if (o.cert == "") != (o.key == "") {
		return cfg, "", errors.New("--cert and --key belong together: want both or none")
	}
	cfg, err = config.Load(cmp.Or(o.path, fleet.DefaultPath))
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.path == "":
		return cfg, "", cli.NewError(cli.ExitUsage, fmt.Errorf("this node is in no fleet: no file %s", fleet.DefaultPath), noFleetHint)
	case err != nil:
		return cfg, "", cli.NewError(cli.ExitUsage, err, configHint)
	}
	if o.cert != "" && cfg.TLS.Insecure {
		return cfg, "", errors.New("--cert and --key have no effect: fleet.toml sets tls.insecure, so that etcd sees no certificate")
	}
	if o.cert != "" {
		cfg.TLS.Cert, cfg.TLS.Key = o.cert, o.key
	}
	node, err = etcd.NodeName(cfg.Node, etcd.MachineIDPath)
	return cfg, node, err
}

// client returns a client of etcd.
func (o *options) client(cfg *fleet.Config, node string) (*etcd.Client, error) {
	return etcd.New(etcd.Options{
		Fleet: cfg.Fleet, Zone: cfg.Zone, Node: node, Endpoints: shuffled(cfg.Endpoints), TLS: cfg.TLS, Rates: cfg.Rates,
		Now: cgroup.BootTime,
	})
}

// shuffled returns the endpoints in a random order, so that the nodes of a fleet do not all use the first one.
func shuffled(endpoints []string) []string {
	endpoints = slices.Clone(endpoints)
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	return endpoints
}

// open reads the configuration and returns a client of its etcd.
func (o *options) open() (cfg fleet.Config, node string, client *etcd.Client, err error) {
	if cfg, node, err = o.load(); err == nil {
		client, err = o.client(&cfg, node)
	}
	return cfg, node, client, err
}
