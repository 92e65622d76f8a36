package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

func newPrune(o *options) *cobra.Command {
	var p guard.PruneOptions
	var all, verbose bool
	until := ""
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove dead containers and unused images now, by the service's rules",
		Long: `Remove dead containers, sandboxes, orphaned logs and unused images now, by the
same rules as the service: nothing that is in use, pinned, kept, too young or that
could not be pulled again. It does what it is told in observe mode and during a pause,
too. With --dry-run it names what it would remove. Where [containers] gc is off, it
removes containers with --containers only.`,
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
			var reports []reclaim.Report
			err := o.look(cmd.Context(), func(l *guard.Look) (err error) {
				reports, err = prune(cmd.Context(), l, p, cmd.ErrOrStderr())
				return err
			})
			if err != nil {
				return err
			}
			if o.output == "json" {
				err = printJSON(cmd.OutOrStdout(), map[string]any{"apiVersion": guard.APIVersion, "dryRun": p.DryRun, "steps": reports})
			} else {
				printReports(cmd.OutOrStdout(), reports, p.DryRun, verbose)
			}
			if err == nil && slices.ContainsFunc(reports, func(r reclaim.Report) bool { return len(r.Errors) > 0 }) {
				return &codeError{code: exitFinding}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&p.Containers, "containers", false, "dead containers, sandboxes and orphaned logs only")
	f.BoolVar(&p.Images, "images", false, "unused images only")
	f.BoolVar(&all, "all", false, "both, which is the default")
	f.BoolVarP(&p.DryRun, "dry-run", "n", false, "name what would be removed, and remove nothing")
	f.BoolVarP(&verbose, "verbose", "v", false, "name what is kept, too, and why")
	f.StringVar(&until, "until", "", `end when so much is available, as "imagefs.available=20%"`)
	o.outputFlag(cmd)
	return cmd
}

// prune prunes, with a progress bar where w is a terminal: a removal takes up to
// seconds, and there may be many.
func prune(ctx context.Context, l *guard.Look, p guard.PruneOptions, w io.Writer) ([]reclaim.Report, error) {
	if f, ok := w.(*os.File); !ok || p.DryRun || !term.IsTerminal(int(f.Fd())) {
		return l.Prune(ctx, p)
	}
	dry := p
	dry.DryRun = true
	planned, err := l.Prune(ctx, dry)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, r := range planned {
		total += len(r.Removed)
	}
	bar := progressbar.NewOptions(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("removing"),
		progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
	p.Progress = func(it reclaim.Item) {
		bar.Describe("removing " + it.Name)
		_ = bar.Add(1) // a terminal that went away does not end the pruning
	}
	reports, err := l.Prune(ctx, p)
	_ = bar.Finish()
	return reports, err
}

// parseUntil reads "signal=quantity" of a disk signal.
func parseUntil(s string, p *guard.PruneOptions) error {
	name, value, _ := strings.Cut(s, "=")
	sig, err := policy.ParseSignal(name)
	if err != nil {
		return fmt.Errorf("--until %q: %w", s, err)
	}
	if !sig.IsDisk() {
		return fmt.Errorf("--until %q: %s is no disk signal", s, sig)
	}
	q, err := policy.ParseQuantity(value)
	if err != nil {
		return fmt.Errorf("--until %q: %w", s, err)
	}
	p.Signal, p.Until = sig, q
	return nil
}

// look opens a direct look at the node for f.
func (o *options) look(ctx context.Context, f func(*guard.Look) error) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	l, err := guard.OpenLook(ctx, cfg)
	if err != nil {
		return classify(err)
	}
	defer l.Close()
	return classify(f(l))
}

func printReports(w io.Writer, reports []reclaim.Report, dry, verbose bool) {
	t := newTable(w, "WHAT", "NAME", "SIZE", "AGE", "LAST USED", "", "WHY")
	removed := 0
	var freed int64
	row := func(it reclaim.Item, what string) {
		used := "never seen"
		if it.Used {
			used = age(it.LastUsed) + " ago"
		} else if it.Kind != reclaim.KindImage {
			used = "-"
		}
		t.row(string(it.Kind), itemName(it), itemSize(it), age(it.Age), used, what, it.Why)
	}
	done := "removed"
	if dry {
		done = "would remove"
	}
	for _, r := range reports {
		freed += r.Freed
		for _, it := range r.Removed {
			removed++
			row(it, done)
		}
		for _, f := range r.Errors {
			t.row(string(f.Kind), f.Name, "-", "-", "-", "failed", f.Message)
		}
		if verbose {
			for _, it := range r.Kept {
				row(it, "kept")
			}
		}
	}
	t.flush()
	fmt.Fprintf(w, "%s %d", done, removed)
	if freed > 0 {
		fmt.Fprintf(w, ", %s freed", guard.FormatBytes(freed))
	}
	fmt.Fprintln(w)
}
