package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/criguard/criguard/cri"
)

// stuckFor is how long an image stays that would not go, and a container or sandbox that hung
// has its turn last: to ask again and again only keeps the runtime busy.
const stuckFor = 10 * time.Minute

// errNothing is a removal that the runtime says it made, and did not.
var errNothing = errors.New("the runtime says it is done, and the image is still there")

// ImageList is every image with its verdict.
type ImageList struct {
	Verdicts []Verdict `json:"images"`
	// PinsSeen: the runtime has reported some image as pinned. One that never does
	// cannot pin: then nothing of an image says that it must stay but its names.
	PinsSeen bool     `json:"pins_seen"`
	Notes    []string `json:"notes,omitempty"` // which air-gap files could not be read
}

// Images judges all images as a collection under this plan would, and removes
// nothing.
func (c *Collector) Images(ctx context.Context, p Plan) (ImageList, error) {
	return c.judge(ctx, p, c.inventory)
}

// judge judges the images of a node. What may take long comes first: to read tarballs.
func (c *Collector) judge(ctx context.Context, p Plan, inventory func(context.Context) (inventory, error)) (ImageList, error) {
	var list ImageList
	var files []string
	var err error
	if p.Images.Prune != PruneAlways {
		if files, list.Notes, err = c.airgap.names(ctx, p.Images.AirGapDirs); err != nil {
			return ImageList{}, err
		}
	}
	inv, err := inventory(ctx)
	if err != nil {
		return ImageList{}, err
	}
	images, use, err := c.imageUse(ctx, inv)
	if err != nil {
		return ImageList{}, err
	}
	now := c.clock().Boot
	use.AirGap, use.Stuck, use.Hold = files, c.stuckAt(now), p.hold(now)
	if p.Containers.Finished { // under pressure: an image that is not kept saves a pod
		use.Away = c.ledger.away(now, p.runtimeFor(now))
	}
	list.Verdicts = judgeImages(images, use, p.Images, c.ledger, now)
	list.PinsSeen = c.ledger.pinsSeen()
	return list, nil
}

// collectImages removes unused images, one at a time. All is listed and judged
// afresh for each removal, and what uses images is listed once more right before it: a
// container may have come meanwhile, and containerd removes an image in use without a
// word.
func (j *job) collectImages(ctx context.Context) {
	tried := map[string]bool{}
	defer func() {
		if len(tried) > 0 && !j.plan.DryRun {
			j.saveLedger()
		}
	}()
	for {
		list, err := j.judge(ctx, j.plan, j.inventory)
		if err != nil {
			j.failed(Item{}, err)
			return
		}
		j.report.Notes = list.Notes
		next := slices.IndexFunc(list.Verdicts, func(v Verdict) bool {
			return v.Removable && !tried[v.ID] && (!j.gauge.met() || j.plan.Expire && v.Expired)
		})
		if next < 0 || j.over(ctx) {
			j.keepImages(list.Verdicts, tried)
			return
		}
		v, went := list.Verdicts[next], true
		if !j.plan.DryRun {
			went, err = j.removeImage(ctx, v)
		}
		tried[v.ID] = true
		switch {
		case err != nil:
			j.failed(v.Item, err)
		case went:
			j.removed(ctx, v.Item)
		}
	}
}

func (j *job) keepImages(verdicts []Verdict, tried map[string]bool) {
	for _, v := range verdicts {
		switch {
		case !v.Removable:
			j.keep(v.Item, v.Why)
		case !tried[v.ID] && j.gauge.met():
			j.keep(v.Item, whyMet)
		}
	}
}

// removeImage removes one image with all its names, and believes the listing alone. It reports
// false for one that is needed after all: to judge and to write the ledger takes time.
func (j *job) removeImage(ctx context.Context, v Verdict) (went bool, err error) {
	j.ledger.noteRemoving(v.ID)
	j.saveLedger()
	if needed, err := j.needed(ctx, v.Image); err != nil || needed {
		return false, err
	}
	call, cancel := context.WithTimeout(ctx, removeImageFor)
	err = unlessGone(j.runtime.RemoveImage(call, v.Image.RemovalRef()))
	cancel()
	images, listErr := j.runtime.Images(ctx)
	if listErr != nil {
		return false, errors.Join(err, listErr)
	}
	if !slices.ContainsFunc(images, func(img cri.Image) bool { return img.ID == v.ID }) {
		return true, nil // however it came about
	}
	j.noteStuck(v.ID)
	if err == nil {
		err = fmt.Errorf("remove image %s: %w", v.Name, errNothing)
	}
	return false, err
}

// needed reports whether an image is in use now.
func (j *job) needed(ctx context.Context, img cri.Image) (bool, error) {
	inv, err := j.inventory(ctx)
	if err != nil {
		return false, err
	}
	use, err := j.usesOf(ctx, inv)
	return len(use.needed([]cri.Image{img})) > 0, err
}

func (j *job) saveLedger() {
	if err := j.ledger.Save(j.clock().Boot); err != nil {
		j.report.fail(Item{}, err)
	}
}

// noteStuck takes in that the removal of an image did not work, or that of a container or
// sandbox hung.
func (c *Collector) noteStuck(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stuck[id] = c.clock().Boot
}

// stuckAt lists what would not go a moment ago.
func (c *Collector) stuckAt(now time.Duration) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	stuck := make(map[string]bool, len(c.stuck))
	for id, at := range c.stuck {
		if now-at >= stuckFor {
			delete(c.stuck, id)
			continue
		}
		stuck[id] = true
	}
	return stuck
}
