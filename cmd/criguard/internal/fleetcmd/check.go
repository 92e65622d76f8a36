package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/etcd"
)

// fleetCheck is the JSON of `fleet check`.
type fleetCheck struct {
	APIVersion string          `json:"apiVersion"`
	Fleet      string          `json:"fleet"`     // its name
	Node       string          `json:"node"`      // name of this node in the fleet
	Role       string          `json:"role"`      // node or operator: whose permissions are checked
	Endpoints  []fleetEndpoint `json:"endpoints"` // as in fleet.toml
	Errors     []string        `json:"errors"`    // why the fleet does not work
	Warnings   []string        `json:"warnings"`  // why it may not work for long
}

// Whose permissions are checked.
const (
	roleNode     = "node"
	roleOperator = "operator"
)

// fleetEndpoint is a member of etcd.
type fleetEndpoint struct {
	URL       string       `json:"url"`                                // as in fleet.toml
	Version   string       `json:"version,omitempty"`                  // of etcd
	Size      int64        `json:"size_bytes,omitempty" unit:"bytes"`  // of the database
	Quota     int64        `json:"quota_bytes,omitempty" unit:"bytes"` // of the database; absent before etcd 3.6
	RoundTrip api.Duration `json:"round_trip,omitempty"`               // of a read that a majority confirmed
	Error     string       `json:"error,omitempty"`                    // short name of the failure; absent = it suits
}

func newFleetCheck(o *fleetOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check fleet.toml, each member of etcd and the permissions in it",
		Long: `Check fleet.toml, and that each of its endpoints is an etcd that suits a fleet: reachable
over TLS, not kine or the etcd of a Kubernetes cluster, with leases, within its quota,
and compacted from time to time. Then check that the certificate may write what a node
writes, or what an operator writes with --cert and --key. It changes nothing in etcd.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			check, err := o.checkFleet(cmd.Context())
			if err != nil {
				return err
			}
			if err := o.print(cmd, check, func(w io.Writer) { printFleetCheck(w, &check) }); err != nil {
				return err
			}
			return check.verdict()
		},
	}
	o.certFlags(cmd)
	o.outputFlag(cmd)
	return cmd
}

func (o *fleetOptions) checkFleet(ctx context.Context) (fleetCheck, error) {
	cfg, node, err := o.loadFleet()
	if err != nil {
		return fleetCheck{}, err
	}
	check := fleetCheck{APIVersion: api.APIVersion, Fleet: cfg.Fleet, Node: node, Role: roleNode, Endpoints: []fleetEndpoint{}, Errors: []string{}, Warnings: []string{}}
	if o.cert != "" {
		check.Role = roleOperator
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
	client, err := o.fleetClient(&cfg, node)
	if err != nil {
		return check, err
	}
	defer client.Close()
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
func (c *fleetCheck) endpoint(ctx context.Context, o *fleetOptions, cfg *fleet.Config, node string) error {
	client, err := o.fleetClient(cfg, node)
	if err != nil {
		return err
	}
	defer client.Close()
	e := fleetEndpoint{URL: cfg.Endpoints[0]}
	s, err := client.Inspect(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("check %s: %w", e.URL, context.Cause(ctx))
	}
	if err != nil {
		e.Error = etcd.Reason(err)
		c.Errors = append(c.Errors, err.Error())
	} else {
		e.Version, e.Size, e.Quota, e.RoundTrip = s.Version, s.Size, s.Quota, api.Duration(s.RoundTrip)
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
func (c *fleetCheck) warn(url string, s *etcd.Server) {
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
		add("a read took %s", age(s.RoundTrip))
	}
	for _, text := range s.Errors {
		add("etcd reports: %s", text)
	}
}

// answers reports whether at least one member suits.
func (c *fleetCheck) answers() bool {
	for _, e := range c.Endpoints {
		if e.Error == "" {
			return true
		}
	}
	return false
}

func (c *fleetCheck) verdict() error {
	switch {
	case !c.answers():
		return &codeError{code: exitUnreachable}
	case len(c.Errors)+len(c.Warnings) > 0:
		return &codeError{code: exitFinding}
	}
	return nil
}

func printFleetCheck(w io.Writer, c *fleetCheck) {
	say(w, "fleet  %s\nnode   %s\n\n", c.Fleet, c.Node)
	t := newTable(w, "ENDPOINT", "VERSION", "SIZE", "QUOTA", "ROUND TRIP", "RESULT")
	for _, e := range c.Endpoints {
		if e.Error != "" {
			t.row(e.URL, "-", "-", "-", "-", e.Error)
			continue
		}
		quota := "-"
		if e.Quota > 0 {
			quota = api.FormatBytes(e.Quota)
		}
		t.row(e.URL, e.Version, api.FormatBytes(e.Size), quota, age(time.Duration(e.RoundTrip)), "ok")
	}
	t.flush()
	if len(c.Errors)+len(c.Warnings) == 0 {
		who := map[string]string{roleNode: "a node", roleOperator: "an operator"}[c.Role]
		say(w, "\nok: each endpoint suits a fleet, and this certificate may write what %s writes\n", who)
		return
	}
	say(w, "\n")
	for _, text := range c.Errors {
		say(w, "ERROR    %s\n", text)
	}
	for _, text := range c.Warnings {
		say(w, "warning  %s\n", text)
	}
}
