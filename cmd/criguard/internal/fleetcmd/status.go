package fleetcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/fleet"
	"github.com/criguard/criguard/guard/fleet/agent"
	"github.com/criguard/criguard/guard/fleet/etcd"
)

// Status is the JSON of `fleet status`.
type Status struct {
	APIVersion  string             `json:"apiVersion"`
	Fleet       string             `json:"fleet"`                  // its name
	Error       string             `json:"error,omitempty"`        // why etcd does not answer: only the node is known
	Full        bool               `json:"full"`                   // every zone of min_zone or more members is full, and at least the share unhealthy of all members wants a soft stop; for example after a bad rollout
	Settling    bool               `json:"settling"`               // the fleet had no members a short time ago, or its etcd had lost writes
	SettlingFor api.Duration       `json:"settling_for,omitempty"` // until it counts as settled
	PausedFor   api.Duration       `json:"paused_for,omitempty"`   // by an operator
	Zones       []zoneStatus       `json:"zones"`                  // by name
	Members     []memberStatus     `json:"members"`                // by zone and name
	Pressured   []pressuredMembers `json:"pressured"`              // configurations of members that want a soft stop, most frequent first
	Node        nodeStatus         `json:"node"`                   // this node
}

// zoneStatus is a zone of the fleet.
type zoneStatus struct {
	Zone    string           `json:"zone"`              // "" = the only one
	Members int              `json:"members"`           // nodes in the zone
	Wanting int              `json:"wanting"`           // members that want a soft stop
	State   fleet.State      `json:"state"`             // normal, partial or full
	Rate    fleet.Millionths `json:"rate"`              // permits per second
	Why     string           `json:"why"`               // the arithmetic
	Next    api.Duration     `json:"next,omitempty"`    // until the zone's next permit, at most
	HeldBy  string           `json:"held_by,omitempty"` // node that has the slot
}

// memberStatus is a node of the fleet.
type memberStatus struct {
	Zone    string   `json:"zone"`            // "" = the only one
	Node    string   `json:"node"`            // name in the fleet
	Digest  string   `json:"digest"`          // of its configuration
	Version string   `json:"version"`         // of criguard
	Wants   []string `json:"wants,omitempty"` // pools that want a soft stop
}

// pressuredMembers is a configuration shared by members that want a soft stop.
type pressuredMembers struct {
	Digest  string `json:"digest"`  // of the configuration
	Version string `json:"version"` // of criguard
	Members int    `json:"members"` // that have it
	Wanting int    `json:"wanting"` // members that want a soft stop
}

// nodeStatus is this node, by its agent.
type nodeStatus struct {
	Node  string        `json:"node"`            // its name in the fleet
	Agent *agent.Status `json:"agent,omitempty"` // absent if it does not answer
	Error string        `json:"error,omitempty"` // why the agent does not answer
	down  bool          // the agent does not answer, and should
}

func newStatus(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the zones of the fleet, its members and this node",
		Long: `Show the zones of the fleet with their arithmetic, when each may make its next soft stop,
the members with the configurations that they share, and this node as its agent sees it.

It reads the fleet from etcd with the certificate in fleet.toml, or with that of
--cert and --key.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, err := o.status(cmd.Context())
			if err != nil {
				return err
			}
			if err := o.Print(cmd, st, func(w io.Writer) { printStatus(w, &st) }); err != nil {
				return err
			}
			return st.verdict()
		},
	}
	o.certFlags(cmd)
	o.OutputFlag(cmd)
	return cmd
}

func (o *options) status(ctx context.Context) (Status, error) {
	cfg, node, client, err := o.open()
	if err != nil {
		return Status{}, err
	}
	defer client.Close()
	st, err := readFleet(ctx, client, &cfg)
	if ce := errorOf(err); err != nil && ce.Code != cli.ExitUnreachable {
		return st, ce
	} else if err != nil {
		st = statusOf(cfg.Fleet, cfg.Rates, &etcd.Fleet{})
		st.Error = err.Error()
	}
	st.Node = o.node(ctx, node)
	return st, nil
}

// node describes this node, whose name in the fleet is given.
func (o *options) node(ctx context.Context, name string) nodeStatus {
	own, err := ask(ctx, o.Dir())
	if err != nil {
		// An operator's machine may have no agent.
		return nodeStatus{Node: name, Error: err.Error(), down: o.cert == "" && !errors.Is(err, fs.ErrPermission)}
	}
	return nodeStatus{Node: name, Agent: &own}
}

// readFleet reads the fleet from etcd.
func readFleet(ctx context.Context, client *etcd.Client, cfg *fleet.Config) (Status, error) {
	list, err := client.List(ctx)
	if err != nil {
		return Status{}, err
	}
	rates, err := list.Policy.Apply(cfg.Rates)
	if err != nil {
		return Status{}, err
	}
	st := statusOf(cfg.Fleet, rates, &list)
	if list.Policy.Paused {
		seen, err := client.Survey(ctx, cfg.Rates)
		if err != nil {
			return st, err
		}
		st.PausedFor = api.Duration(seen.Paused)
	}
	return st, nil
}

// statusOf describes a fleet under the rates in force.
func statusOf(name string, rates fleet.Rates, list *etcd.Fleet) Status {
	var begin time.Duration
	if list.Settling {
		begin = etcd.PermitsBegin(rates, list.SettlingFor, list.SettlingTime)
	}
	view := fleet.View{Zones: list.Zones, Settling: list.Settling, Paused: list.Policy.Paused}
	st := Status{
		APIVersion: api.APIVersion, Fleet: name, Full: !list.Settling && rates.FleetFull(list.Zones), Settling: list.Settling,
		SettlingFor: api.Duration(list.SettlingFor), Zones: []zoneStatus{}, Members: []memberStatus{}, Pressured: []pressuredMembers{},
	}
	for _, zone := range slices.Sorted(maps.Keys(list.Zones)) {
		n := list.Zones[zone]
		z := zoneStatus{
			Zone: zone, Members: n.Size(), Wanting: n.Wanting, State: rates.State(n),
			Rate: rates.Of(view, zone), Why: rates.Explain(view, zone), Next: api.Duration(begin),
		}
		if i := slices.IndexFunc(list.Slots, func(s etcd.Slot) bool { return s.Zone == zone }); i >= 0 {
			z.Next, z.HeldBy = max(z.Next, api.Duration(list.Slots[i].FreeIn)), list.Slots[i].Node
		}
		st.Zones = append(st.Zones, z)
	}
	shared := map[[2]string]*pressuredMembers{}
	for _, m := range list.Members {
		st.Members = append(st.Members, memberStatus{m.Zone, m.Name, m.Digest, m.Version, m.Pools})
		p := shared[[2]string{m.Digest, m.Version}]
		if p == nil {
			p = &pressuredMembers{Digest: m.Digest, Version: m.Version}
			shared[[2]string{m.Digest, m.Version}] = p
		}
		p.Members++
		if len(m.Pools) > 0 {
			p.Wanting++
		}
	}
	for _, p := range shared {
		if p.Wanting > 0 {
			st.Pressured = append(st.Pressured, *p)
		}
	}
	slices.SortFunc(st.Pressured, func(a, b pressuredMembers) int {
		return cmp.Or(cmp.Compare(b.Wanting, a.Wanting), strings.Compare(a.Digest, b.Digest), strings.Compare(a.Version, b.Version))
	})
	return st
}

// verdict returns exit code 1 if something keeps soft stops from being permitted.
func (st *Status) verdict() error {
	if st.Error != "" {
		return cli.Unreachable()
	}
	found := st.Node.down || st.Full || st.PausedFor > 0 || slices.ContainsFunc(st.Zones, func(z zoneStatus) bool { return z.State != fleet.Normal })
	if own := st.Node.Agent; own != nil {
		found = found || own.AloneFor > 0 || own.PauseLost || own.NameTaken
	}
	if found {
		return cli.Finding()
	}
	return nil
}

func printStatus(w io.Writer, st *Status) {
	cli.Say(w, "fleet       %s\n", st.Fleet)
	if st.Full {
		cli.Say(w, "ALARM       the fleet is full: no soft stops anywhere. A bad rollout looks like this\n")
	}
	if st.PausedFor > 0 {
		cli.Say(w, "PAUSED      for another %s\n", cli.Age(time.Duration(st.PausedFor)))
	}
	if st.Settling {
		cli.Say(w, "settling    for another %s, because the fleet had no members a short time ago, or its etcd had lost writes: every zone has its secondary rate\n", cli.Age(time.Duration(st.SettlingFor)))
	}
	if st.Error != "" {
		cli.Say(w, "etcd        %s\n", st.Error)
	}
	printNode(w, &st.Node)
	if st.Error != "" {
		return
	}
	cli.Say(w, "\n")
	if len(st.Zones)+len(st.Members) == 0 {
		cli.Say(w, "The fleet has no members: a node is one while its guard runs with [fleet] enabled = true and its agent runs.\n")
		return
	}
	t := cli.NewTable(w, "ZONE", "STATE", "NEXT PERMIT", "WHY")
	for _, z := range st.Zones {
		next := "now"
		switch {
		case z.Rate == 0:
			next = "none"
		case z.Next > 0:
			next = "in " + cli.Age(time.Duration(z.Next))
			if z.HeldBy != "" {
				next += ", after " + z.HeldBy
			}
		}
		t.Row(cmp.Or(z.Zone, "-"), z.State.String(), next, z.Why)
	}
	t.Flush()
	if len(st.Pressured) > 0 {
		cli.Say(w, "\n")
		t = cli.NewTable(w, "CONFIGURATION", "VERSION", "WANT A SOFT STOP")
		for _, p := range st.Pressured {
			t.Row(shortDigest(p.Digest), cmp.Or(p.Version, "-"), fmt.Sprintf("%d of %s", p.Wanting, api.Count(p.Members, "node")))
		}
		t.Flush()
	}
	cli.Say(w, "\n")
	t = cli.NewTable(w, "NODE", "ZONE", "CONFIGURATION", "VERSION", "WANTS").Spare("VERSION", "CONFIGURATION")
	for _, m := range st.Members {
		t.Row(m.Node, cmp.Or(m.Zone, "-"), shortDigest(m.Digest), cmp.Or(m.Version, "-"), cmp.Or(strings.Join(m.Wants, ", "), "-"))
	}
	t.Flush()
}

// shortDigest returns the beginning of a digest, which is enough to compare a few.
func shortDigest(digest string) string {
	const enough = 12
	return cmp.Or(digest[:min(len(digest), enough)], "-")
}

func printNode(w io.Writer, n *nodeStatus) {
	cli.Say(w, "this node   %s\n", n.Node)
	a := n.Agent
	if a == nil {
		cli.Say(w, "agent       %s\n", n.Error)
		return
	}
	switch {
	case a.AloneFor > 0:
		cli.Say(w, "ALONE       for %s: %s\n", cli.Age(time.Duration(a.AloneFor)), a.Error)
		if a.PausedFor > 0 {
			cli.Say(w, "PAUSED      for another %s, as the node last knew\n", cli.Age(time.Duration(a.PausedFor)))
		}
	case a.Error != "":
		cli.Say(w, "agent       %s\n", a.Error)
	case a.Zone == nil:
		cli.Say(w, "agent       has not reported to the fleet yet: it does within 30s while criguard runs with [fleet] enabled = true\n")
	default:
		cli.Say(w, "agent       connected\n")
	}
	if a.NameTaken {
		cli.Say(w, "ALARM       another agent reports under this name (%s)\n", agent.NameHint)
	}
	if a.PauseLost {
		cli.Say(w, "ALARM       a pause is gone before its time, and no operator resumed\n")
	}
	for _, r := range a.Requests {
		state := r.Answer.State
		if r.Answer.Reason != "" {
			state = "held, " + r.Answer.Reason
		}
		if r.Answer.RetryAfter > 0 {
			state += ", asked again in " + words.Left(r.Answer.RetryAfter)
		}
		cli.Say(w, "request     %s for %s: %s\n", r.Pool, r.Workload, state)
	}
	cli.Say(w, "soft stops  %d by permit, %d by trickle, %d by the local budget\n", a.Counts.Permits, a.Counts.Trickle, a.Counts.Local)
}

// errorOf gives an error of etcd its exit code.
func errorOf(err error) *cli.Error {
	if ce, ok := errors.AsType[*cli.Error](err); ok {
		return ce
	}
	for _, unreachable := range []error{etcd.ErrUnreachable, etcd.ErrTimeout, etcd.ErrNoLeader} {
		if errors.Is(err, unreachable) {
			return cli.NewError(cli.ExitUnreachable, err, "`criguard fleet check` tries each endpoint in fleet.toml")
		}
	}
	return cli.NewError(cli.ExitUsage, err, "docs/fleet.md lists the roles in etcd and the ways to fail")
}
