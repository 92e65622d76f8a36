package fleetcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
)

// Check is the JSON of `fleet check`.
type Check struct {
	APIVersion string          `json:"apiVersion"`
	Fleet      string          `json:"fleet"`     // its name
	Node       string          `json:"node"`      // name of this node in the fleet
	Role       string          `json:"role"`      // node or operator: whose permissions are checked
	Endpoints  []endpointCheck `json:"endpoints"` // as in fleet.toml; none with --offline
	Errors     []string        `json:"errors"`    // why the fleet does not work
	Warnings   []string        `json:"warnings"`  // why it may not work for long
}

// Whose permissions are checked.
const (
	roleNode     = "node"
	roleOperator = "operator"
)

// endpointCheck is a member of etcd.
type endpointCheck struct {
	URL       string       `json:"url"`                                // as in fleet.toml
	Version   string       `json:"version,omitempty"`                  // of etcd
	Size      int64        `json:"size_bytes,omitempty" unit:"bytes"`  // of the database
	Quota     int64        `json:"quota_bytes,omitempty" unit:"bytes"` // of the database; absent before etcd 3.6
	RoundTrip api.Duration `json:"round_trip,omitempty"`               // of a read that a majority confirmed
	Error     string       `json:"error,omitempty"`                    // short name of the failure; absent = none

	cluster int64 // ID of its cluster
}

func newCheck(o *options) *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check fleet.toml, each member of etcd and the permissions in it",
		Long: `Check fleet.toml, and that each of its endpoints is an etcd that suits a fleet: reachable
over TLS, in the same cluster as the others, not kine or the etcd of a Kubernetes cluster,
with leases, within its quota, and compacted from time to time. Then check that the
certificate may write what a node writes, or what an operator writes with --cert and
--key. It warns of certificates that expire within 30 days, and of unknown names in the
operators' rates. It changes nothing in etcd. --offline checks only fleet.toml.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			check, err := o.check(cmd.Context(), offline)
			if err != nil {
				return err
			}
			show := printCheck
			if offline {
				show = printOffline
			}
			if err := o.Print(cmd, check, func(w io.Writer) { show(w, &check) }); err != nil || offline {
				return err
			}
			return check.verdict()
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "check fleet.toml alone, not etcd")
	o.certFlags(cmd)
	o.OutputFlag(cmd)
	return cmd
}

func (o *options) check(ctx context.Context, offline bool) (Check, error) {
	cfg, node, err := o.load()
	if err != nil {
		return Check{}, err
	}
	check := Check{APIVersion: api.APIVersion, Fleet: cfg.Fleet, Node: node, Role: roleNode, Endpoints: []endpointCheck{}, Errors: []string{}, Warnings: []string{}}
	if o.cert != "" {
		check.Role = roleOperator
	}
	client, err := o.client(&cfg, node)
	if err != nil {
		return check, err
	}
	defer client.Close()
	if offline {
		return check, nil
	}
	for _, url := range cfg.Endpoints {
		one := cfg
		one.Endpoints = []string{url}
		if err := check.endpoint(ctx, o, &one, node); err != nil {
			return check, err
		}
	}
	if !check.answers() {
		return check, nil
	}
	check.compareClusters()
	check.warnExpiry(cfg.TLS, time.Now())
	if look, err := client.Look(ctx, ""); err == nil && look.Policy.Unknown != "" {
		check.Warnings = append(check.Warnings, "policy/rates: "+look.Policy.Unknown+", which has no effect (hint: its names are those of [rates] in fleet.toml, except patience)")
	}
	may := client.CheckNode
	if check.Role == roleOperator {
		may = client.CheckOperator
	}
	if err := may(ctx); err != nil {
		check.Errors = append(check.Errors, strings.Split(err.Error(), "\n")...)
	}
	return check, nil
}

// endpoint checks one member of etcd.
func (c *Check) endpoint(ctx context.Context, o *options, cfg *fleet.Config, node string) error {
	client, err := o.client(cfg, node)
	if err != nil {
		return err
	}
	defer client.Close()
	e := endpointCheck{URL: cfg.Endpoints[0]}
	s, err := client.Inspect(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("check %s: %w", e.URL, context.Cause(ctx))
	}
	if err != nil {
		e.Error = etcd.Reason(err)
		if text := err.Error(); !slices.Contains(c.Errors, text) { // all members may have the same, such as a missing file
			c.Errors = append(c.Errors, text)
		}
	} else {
		e.cluster, e.Version, e.Size, e.Quota, e.RoundTrip = s.Cluster, s.Version, s.Size, s.Quota, api.Duration(s.RoundTrip)
		c.warn(e.URL, &s)
	}
	c.Endpoints = append(c.Endpoints, e)
	return nil
}

const (
	// manyWrites is how many writes an etcd makes at most before its first automatic compaction, at the usual settings of
	// an hour or a few thousand revisions.
	manyWrites = 50_000
	// assumedQuota is the default of etcd, which does not show its quota before 3.6.
	assumedQuota = 2 << 30
	// slowTrip is a round trip from which etcd limits the rates.
	slowTrip = 500 * time.Millisecond
)

// warn adds the warnings about a member.
func (c *Check) warn(url string, s *etcd.Server) {
	add := func(format string, args ...any) {
		c.Warnings = append(c.Warnings, url+": "+fmt.Sprintf(format, args...))
	}
	if !s.Compacted && s.Revision > manyWrites {
		add("never compacted in %d writes: at one write a second it grows by 35 MB a day (hint: --auto-compaction-retention=1h)", s.Revision)
	}
	if quota := cmp.Or(s.Quota, assumedQuota); s.Size > quota/5*4 {
		add("the database has %s of %s: a full one refuses all permits (hint: compact and defragment it)", api.FormatBytes(s.Size), api.FormatBytes(quota))
	}
	if s.RoundTrip > slowTrip {
		add("a read took %s", cli.Age(s.RoundTrip))
	}
	for _, text := range s.Errors {
		add("etcd reports: %s", text)
	}
}

// renewal is how long before it expires a certificate should be renewed.
const renewal = 30 * 24 * time.Hour

// warnExpiry adds a warning for a certificate that expires soon, and for a file of authorities of which all do. One that cannot be
// read is an error of the endpoints.
func (c *Check) warnExpiry(files fleet.TLS, now time.Time) {
	cert, ca, err := etcd.Expiry(files)
	if err != nil {
		return
	}
	for _, of := range []struct {
		file string
		end  time.Time
	}{{files.Cert, cert}, {files.CA, ca}} {
		if of.end.Sub(now) < renewal {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s expires on %s: from then on, etcd cannot be reached with it (hint: renew it; a new file needs no restart)",
				of.file, of.end.UTC().Format(time.DateOnly)))
		}
	}
}

// compareClusters adds an error for each endpoint that is in another cluster than the first one that answers.
func (c *Check) compareClusters() {
	var first *endpointCheck
	for i := range c.Endpoints {
		switch e := &c.Endpoints[i]; {
		case e.Error != "":
		case first == nil:
			first = e
		case e.cluster != first.cluster:
			c.Errors = append(c.Errors, fmt.Sprintf("%s: it is in another cluster than %s, so that permits of one do not count in the other (hint: compare `etcdctl member list` of both)", e.URL, first.URL))
		}
	}
}

// answers reports whether at least one member suits.
func (c *Check) answers() bool {
	for _, e := range c.Endpoints {
		if e.Error == "" {
			return true
		}
	}
	return false
}

func (c *Check) verdict() error {
	switch {
	case !c.answers():
		return cli.Unreachable()
	case len(c.Errors)+len(c.Warnings) > 0:
		return cli.Finding()
	}
	return nil
}

func printHead(w io.Writer, c *Check) { cli.Say(w, "fleet  %s\nnode   %s\n\n", c.Fleet, c.Node) }

func printOffline(w io.Writer, c *Check) {
	printHead(w, c)
	cli.Say(w, "ok: fleet.toml has no mistakes; etcd was not checked\n")
}

func printCheck(w io.Writer, c *Check) {
	printHead(w, c)
	t := cli.NewTable(w, "ENDPOINT", "VERSION", "SIZE", "QUOTA", "ROUND TRIP", "RESULT").Spare("ROUND TRIP", "VERSION", "QUOTA", "SIZE")
	for _, e := range c.Endpoints {
		if e.Error != "" {
			t.Row(e.URL, "-", "-", "-", "-", e.Error)
			continue
		}
		quota := "-"
		if e.Quota > 0 {
			quota = api.FormatBytes(e.Quota)
		}
		t.Row(e.URL, e.Version, api.FormatBytes(e.Size), quota, cli.Age(time.Duration(e.RoundTrip)), "ok")
	}
	t.Flush()
	if len(c.Errors)+len(c.Warnings) == 0 {
		who := map[string]string{roleNode: "a node", roleOperator: "an operator"}[c.Role]
		cli.Say(w, "\nok: each endpoint suits a fleet, and this certificate may write what %s writes\n", who)
		return
	}
	cli.Say(w, "\n")
	for _, text := range c.Errors {
		cli.Say(w, "ERROR    %s\n", text)
	}
	for _, text := range c.Warnings {
		cli.Say(w, "warning  %s\n", text)
	}
}
