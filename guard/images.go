package guard

import (
	"context"
	"strings"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// PruneOptions say what to remove by hand.
type PruneOptions struct {
	// Both: containers as far as the service removes them, too. Containers alone: also
	// where [containers] gc is off.
	Containers, Images bool
	DryRun             bool
	// Until ends it as soon as the signal's filesystem has so much available; a
	// zero quantity removes all that may go.
	Signal policy.Signal
	Until  policy.Quantity
	// Progress is told of each item as it goes; nil = nobody is.
	Progress func(reclaim.Item)
}

// keeper is a housekeeper for one look: it knows the ages the service has
// written down.
func (l *Look) keeper() (*housekeeper, *reclaim.Collector, error) {
	n := l.node
	h := &housekeeper{node: n, cfg: n.config(), record: func(ReclaimView) {}}
	// A ledger that cannot be read leaves the ages unknown, which protects.
	h.ledger, _ = reclaim.OpenLedger(h.cfg.ledgerPath(), n.bootID, n.kernel.Now())
	c, err := h.collect()
	return h, c, err
}

// Images judges every image: the prunable ones in the order in which they would
// go, then the kept ones with the reason. ErrNoRuntime when no runtime answers.
func (l *Look) Images(ctx context.Context) (reclaim.ImageList, error) {
	h, c, err := l.keeper()
	if err != nil {
		return reclaim.ImageList{}, err
	}
	list, err := c.Images(ctx, h.plan(h.cfg))
	return list, noRuntime(err)
}

// Prune removes what may go, by the same rules as the service, and reports each
// step. ErrNoRuntime when no runtime answers.
func (l *Look) Prune(ctx context.Context, o PruneOptions) ([]reclaim.Report, error) {
	h, c, err := l.keeper()
	if err != nil {
		return nil, err
	}
	p := h.plan(h.cfg)
	p.DryRun, p.Progress = o.DryRun, o.Progress
	if o.Containers && (h.cfg.Containers.GC || !o.Images) {
		p.Steps = append(p.Steps, reclaim.StepContainers, reclaim.StepSandboxes, reclaim.StepLogs)
	}
	if o.Images {
		p.Steps = append(p.Steps, reclaim.StepImages)
	}
	if !o.Until.IsZero() {
		p.Target = l.node.until(o.Signal, o.Until.Of)
	}
	return c.Collect(ctx, p), nil
}

// traceImages lists the images for a trace; without a runtime it has none to
// tell.
func (n *node) traceImages(ctx context.Context) []TraceImage {
	client, err := n.conn.Client()
	if err != nil {
		return nil
	}
	images, err := client.Images(ctx)
	if err != nil {
		return nil
	}
	containers, err := client.Containers(ctx)
	if err != nil {
		return nil
	}
	used := cri.InUse(images, cri.ImageNeeds(containers, nil, nil))
	out := make([]TraceImage, 0, len(images))
	for _, img := range images {
		t := TraceImage{ID: img.ID, Size: TraceQuantity(max(img.Size, 0)), Pinned: img.Pinned}
		_, t.InUse = used[img.ID]
		if len(img.Tags) > 0 {
			t.Name = img.Tags[0]
		}
		if len(img.Digests) == 0 || strings.HasPrefix(t.Name, "localhost/") {
			no := false
			t.Repullable = &no
		}
		out = append(out, t)
	}
	return out
}
