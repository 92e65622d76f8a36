package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/safetext"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

func newPrune(o *options) *cobra.Command {
	var p api.PruneOptions
	var all, verbose, yes bool
	until := ""
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove dead containers and unused images now, by the service's rules",
		Long: `Remove dead containers, sandboxes, orphaned logs and unused images now, by the
same rules as the service: nothing that is in use, pinned, kept, too young or that
could not be pulled again. It also removes in observe mode and during a pause. With
--dry-run it lists what it would remove; on a terminal it asks before it removes images.
With --until it leaves images that are on another filesystem than that of the signal.
If [containers] gc is off, it removes containers only with --containers.

An image ages from when criguard first saw it: a running service records that, and
without one each prune does. --ignore-age also removes images of an unknown age.

A running service prunes, by its own configuration; that needs root or the group
criguard. Without a service, or with --endpoint of another runtime than the service's,
criguard prunes directly. A prune by the service is in its history and journal; a direct
one is not recorded, and says so.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all || !p.Containers && !p.Images {
				p.Containers, p.Images = true, true
			}
			if until != "" {
				if err := parseUntil(until, &p); err != nil {
					return err
				}
			}
			reports, ended := o.prune(cmd.Context(), p, cmd.ErrOrStderr(), yes)
			if ended != nil && len(reports) == 0 {
				return ended
			}
			o.noteUnused(cmd)
			out := api.PruneResult{APIVersion: api.APIVersion, DryRun: p.DryRun, Steps: append([]reclaim.Report{}, reports...), Freed: freed(reports)}
			if ended != nil {
				out.Error = ended.Error()
			}
			err := o.Print(cmd, out, func(w io.Writer) {
				printReports(w, reports, p.DryRun, verbose)
				printNotes(cmd.ErrOrStderr(), reports)
			})
			switch {
			case err != nil:
				return err
			case ended != nil && o.JSON(): // a single value, which has the error
				return &cli.Error{Code: codeOf(ended).Code}
			case ended != nil: // after a part
				return ended
			case slices.ContainsFunc(reports, func(r reclaim.Report) bool { return len(r.Errors) > 0 }):
				return cli.Finding()
			case until == "" || p.DryRun || len(reports) == 0 || reports[len(reports)-1].Met:
				return nil
			case o.JSON(): // a step's "met" says it
				return cli.Finding()
			default:
				return cli.NewError(cli.ExitFinding, fmt.Errorf("--until %s is not reached, and nothing more may be removed", until), "--verbose lists what is kept, and why")
			}
		},
	}
	f := cmd.Flags()
	f.BoolVar(&p.Containers, "containers", false, "dead containers, sandboxes and orphaned logs only")
	f.BoolVar(&p.Images, "images", false, "unused images only")
	f.BoolVar(&all, "all", false, "both, which is the default")
	f.BoolVarP(&p.DryRun, "dry-run", "n", false, "list what would be removed, and remove nothing")
	f.BoolVarP(&verbose, "verbose", "v", false, "also list what is kept, and why")
	f.BoolVar(&p.IgnoreAge, "ignore-age", false, "also remove images that are younger than min_age or unused_grace, or of unknown age")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask on a terminal")
	f.StringVar(&until, "until", "", `end when this much is available, as "imagefs.available=20%"`)
	o.OutputFlag(cmd)
	return cmd
}

// pruner is the service or a direct look at the node.
type pruner interface {
	Prune(ctx context.Context, p api.PruneOptions) ([]reclaim.Report, error)
}

// prune asks the service to prune, or prunes directly if no service manages this runtime.
func (o *options) prune(ctx context.Context, p api.PruneOptions, w io.Writer, yes bool) ([]reclaim.Report, error) {
	return fetch(ctx, o, func(c *control.Client) ([]reclaim.Report, error) { return pruneByService(ctx, c, p, w, yes) },
		func(l *guard.Look) ([]reclaim.Report, error) {
			unrecorded := "no service guards this runtime" // the history has one writer, which may be a service that guards another runtime
			if by := l.Status().GuardedBy; by != "" && !strings.HasPrefix(by, string(o.dir())+" ") && !o.JSON() {
				unrecorded = "the service was not asked"
				cli.Say(w, "note: a service guards this node from another run directory, perhaps with another configuration: %s (hint: --run-dir asks it)\n", by)
			}
			reports, err := prune(ctx, l, p, w, yes)
			if err == nil && !p.DryRun && !o.JSON() {
				cli.Say(w, "note: not recorded: %s\n", unrecorded)
			}
			return reports, err
		})
}

// pruneByService lets the service prune. If the user interrupts that, the service ends it, and no report arrives.
func pruneByService(ctx context.Context, service pruner, p api.PruneOptions, w io.Writer, yes bool) ([]reclaim.Report, error) {
	removed := 0
	p.Progress = func(reclaim.Item) { removed++ }
	reports, err := prune(ctx, service, p, w, yes)
	switch {
	case !errors.Is(err, context.Canceled) || ctx.Err() == nil:
		return reports, err
	case p.DryRun:
		return nil, &cli.Error{Code: cli.ExitFinding, Err: errors.New("interrupted")}
	default:
		return nil, cli.NewError(cli.ExitFinding, fmt.Errorf("interrupted: the service has removed %d, and removes no more than what it has begun", removed),
			"`criguard history` shows what was removed")
	}
}

// printNotes shows what holds images back beyond removals and failures.
func printNotes(w io.Writer, reports []reclaim.Report) {
	for i := range reports {
		printHeldBack(w, reports[i].Notes, reports[i].InDoubt)
		printUnknown(w, reports[i].Kept)
	}
}

// printUnknown says how images of an unknown age get one.
func printUnknown(w io.Writer, images []reclaim.Item) {
	unknown := 0
	for i := range images {
		if strings.HasPrefix(images[i].Why, reclaim.WhyAgeUnknown) {
			unknown++
		}
	}
	if unknown > 0 {
		cli.Say(w, "ages unknown: %s first seen just now (hint: an age counts from when the service or a prune first sees an image; prune --ignore-age does not wait)\n", api.Count(unknown, "image"))
	}
}

// printHeldBack lists the air-gap files and the containers that could not be read.
func printHeldBack(w io.Writer, airGap, containers []string) {
	for _, note := range airGap {
		cli.Say(w, "air-gap file not read: %s\n", note)
	}
	for _, note := range containers {
		cli.Say(w, "images held back: %s\n", note)
	}
}

// prune prunes, with a progress bar if w is a terminal: each removal can take seconds, and there
// may be many. Before it removes images, it asks a user on a terminal.
func prune(ctx context.Context, l pruner, p api.PruneOptions, w io.Writer, yes bool) ([]reclaim.Report, error) {
	screen, ok := cli.Terminal(w)
	ask := p.Images && !yes && !p.DryRun
	if ask {
		var err error
		if ask, err = interactive(w); err != nil {
			return nil, err
		}
	}
	if p.DryRun || !ok && !ask {
		return l.Prune(ctx, p)
	}
	dry := p
	dry.DryRun, dry.Progress = true, nil
	planned, err := l.Prune(ctx, dry)
	if err != nil {
		return nil, err
	}
	total, images := 0, 0
	for _, r := range planned {
		total += len(r.Removed)
		if r.Step == reclaim.StepImages {
			images += len(r.Removed)
		}
	}
	if ask && images > 0 {
		printReports(w, planned, true, false)
		if !confirmed(ctx, os.Stdin, w, "Remove "+api.Count(images, "image")+"?") {
			return nil, errNotConfirmed("removed")
		}
	}
	if !ok {
		return l.Prune(ctx, p)
	}
	bar := progressbar.NewOptions(total, progressbar.OptionSetWriter(screen), progressbar.OptionSetDescription("removing"),
		progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
	next := p.Progress
	p.Progress = func(it reclaim.Item) {
		if next != nil {
			next(it)
		}
		bar.Describe("removing " + safetext.Line(it.Name))
		_ = bar.Add(1) // losing the terminal does not stop the pruning
	}
	reports, err := l.Prune(ctx, p)
	_ = bar.Finish()
	return reports, err
}

// parseUntil parses "signal=quantity" for a disk signal.
func parseUntil(s string, p *api.PruneOptions) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		return fmt.Errorf("--until %q: want a signal and a quantity, such as imagefs.available=20%%", s)
	}
	sig, err := parseSignal("--until", name)
	if err != nil {
		return err
	}
	if !sig.IsDisk() {
		return fmt.Errorf("--until %q: %s is no disk signal", s, sig)
	}
	q, err := policy.ParseQuantity(value)
	if err != nil {
		return fmt.Errorf("--until %q: %w", s, err)
	}
	if q.IsZero() {
		return fmt.Errorf("--until %q: want more than 0, such as %s=20%%", s, sig)
	}
	p.Signal, p.Until = sig, q
	return nil
}

// freed returns how many bytes became available.
func freed(reports []reclaim.Report) (bytes int64) {
	for i := range reports {
		bytes += reports[i].Freed
	}
	return bytes
}

func printReports(w io.Writer, reports []reclaim.Report, dry, verbose bool) {
	t := cli.NewTable(w, "WHAT", "NAME", "SIZE", "AGE", "LAST USED", "RESULT", "WHY").Spare("AGE", "LAST USED")
	removed, rows := 0, 0
	row := func(it reclaim.Item, what string) {
		rows++
		used := "never seen"
		if it.Used {
			used = cli.Age(time.Duration(it.LastUsed)) + " ago"
		} else if it.Kind != reclaim.KindImage {
			used = "-"
		}
		t.Row(string(it.Kind), itemName(it), itemSize(it), itemAge(it), used, what, it.Why)
	}
	done := "removed"
	if dry {
		done = "would remove"
	}
	for _, r := range reports {
		for _, it := range r.Removed {
			removed++
			row(it, done)
		}
		for _, f := range r.Errors {
			rows++
			t.Row(string(f.Kind), cmp.Or(f.Name, f.ID), "-", "-", "-", "failed", f.Message)
		}
		if verbose {
			for _, it := range r.Kept {
				row(it, "kept")
			}
		}
	}
	if rows > 0 {
		t.Flush()
	}
	if slices.ContainsFunc(reports, func(r reclaim.Report) bool { return r.AtMost }) {
		done += " at most"
	}
	fmt.Fprintf(w, "%s %d", done, removed)
	if !dry {
		fmt.Fprintf(w, ", %s freed", api.FormatBytes(freed(reports)))
	}
	fmt.Fprintln(w)
	if rows > 0 {
		return
	}
	for _, r := range reports {
		digest := r.Digest()
		if kept := words.Kept(&digest); kept != "" {
			cli.Say(w, "%s\n", kept)
		}
	}
}
