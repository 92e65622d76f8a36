package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/criguard/criguard/cri"
)

// stuckFor is how long an image stays after its removal failed, and how long a container or sandbox
// that hung or was unavailable is tried last: constant retries only keep the runtime busy.
const stuckFor = 10 * time.Minute

// errNothing: the runtime reported a removal that it did not make.
var errNothing = errors.New("the runtime reported success, but the image still exists")

// ImageList is every image with its verdict.
type ImageList struct {
	Verdicts []Verdict `json:"images"` // removable ones first, in the order of removal
	// The runtime has reported some image as pinned. If it never does, it cannot pin, and
	// only the names of an image show that it must stay.
	PinsSeen bool     `json:"pins_seen"`
	Notes    []string `json:"notes,omitempty"` // the air-gap files that could not be read
	// The containers whose status the runtime does not return, and why. Images that they
	// may have mounted are kept.
	InDoubt []string `json:"in_doubt,omitempty"`

	unread bool // air-gap files have not been read to their end yet
}

// Images judges all images as a collection with this plan would, and removes none.
func (c *Collector) Images(ctx context.Context, p Plan) (ImageList, error) {
	list, err := c.judge(ctx, p, c.inventory)
	for i := range list.Verdicts {
		list.Verdicts[i].round()
	}
	return list, err
}

// judge judges the images of a node. It reads the tarballs first, because that may take long.
func (c *Collector) judge(ctx context.Context, p Plan, inventory func(context.Context) (inventory, error)) (ImageList, error) {
	var list ImageList
	var files airGapNames
	var err error
	if p.Images.Prune != PruneAlways {
		if files, err = c.airgap.names(ctx, p.Images.AirGapDirs); err != nil {
			return ImageList{}, err
		}
		list.Notes, list.unread = files.notes, files.unread
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
	use.AirGap, use.AirGapHold, use.Stuck, use.Hold = files.found, files.hold, c.stuckAt(now), p.hold(now)
	for _, d := range use.Doubts {
		list.InDoubt = append(list.InDoubt, d.note())
	}
	if p.Containers.Finished { // under pressure, an image that is removed saves a pod
		use.Away = c.ledger.away(now, p.runtimeFor(now))
	}
	list.Verdicts = judgeImages(images, use, p.Images, c.ledger, now)
	list.PinsSeen = c.ledger.pinsSeen()
	return list, nil
}

// collectImages removes unused images, one at a time. After each removal it lists and judges all images
// again, and before each it re-lists the users of images: a container may have been created meanwhile,
// and containerd removes an image in use without warning.
func (j *job) collectImages(ctx context.Context) {
	tried := map[string]bool{}
	defer func() {
		if len(tried) > 0 && !j.plan.DryRun {
			j.saveLedger()
		}
	}()
	var list ImageList
	for judged := false; ; judged = j.plan.DryRun { // a dry run changes nothing
		var err error
		if !judged {
			list, err = j.judge(ctx, j.plan, j.inventory)
		}
		if err != nil {
			j.failed(Item{}, err)
			return
		}
		j.report.Notes, j.report.InDoubt, j.report.Unread = list.Notes, list.InDoubt, list.unread
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
		case j.gauge.err != nil: // not the image's fault
			j.report.fail(Item{}, err)
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

// removeImage removes one image with all its names, and trusts the listing more than the answer. It returns
// false if the image is needed after all: judging and writing the ledger take time.
func (j *job) removeImage(ctx context.Context, v Verdict) (went bool, err error) {
	j.ledger.noteRemoving(v.ID)
	j.saveLedger()
	if err := j.gauge.begin(ctx); err != nil { // before the look at its users, because a disk may take seconds
		return false, err
	}
	needed, err := j.needed(ctx, v.Image)
	if err != nil {
		j.failed(Item{}, err) // not the image's fault
		needed = true
	}
	if needed {
		return false, nil
	}
	if j.plan.Orderly {
		ctx = context.WithoutCancel(ctx)
	}
	call, cancel := context.WithTimeout(ctx, removeImageFor)
	err = unlessGone(j.runtime.RemoveImage(call, v.Image.RemovalRef()))
	cancel()
	images, listErr := j.runtime.Images(ctx)
	if listErr != nil {
		j.failed(Item{}, listErr)
		return err == nil, err
	}
	if !slices.ContainsFunc(images, func(img cri.Image) bool { return img.ID == v.ID }) {
		return true, nil // for whatever reason
	}
	// CRI-O and Docker rewrite a file before they remove anything: on a full disk, every removal fails until something else is gone.
	if err == nil || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		j.noteStuck(v.ID)
	}
	if err == nil {
		err = fmt.Errorf("remove image %s: %w", v.Name, errNothing)
	}
	return false, err
}

// needed reports whether an image is in use now. To ask for the details of new containers and sandboxes may take seconds, in which
// further containers start: it looks again until there are none.
func (j *job) needed(ctx context.Context, img cri.Image) (bool, error) {
	inv, err := j.inventory(ctx)
	for range neededLooks {
		if err != nil {
			return false, err
		}
		use, err := j.usesOf(ctx, inv)
		if err != nil {
			return false, err
		}
		use.Absent = j.absentAt()
		if _, doubtful := use.doubtful(img.ID); doubtful || len(use.needed([]cri.Image{img})) > 0 {
			return true, nil
		}
		next, err := j.inventory(ctx)
		if err != nil {
			return false, err
		}
		if !next.hasMore(inv) {
			return false, nil
		}
		inv = next
	}
	return true, nil
}

// neededLooks is how often needed looks before it takes an image for needed.
const neededLooks = 3

func (j *job) saveLedger() {
	if err := j.ledger.Save(j.clock().Boot); err != nil {
		j.report.fail(Item{}, err)
	}
}

// noteStuck records that the removal of an image failed, or that a container or sandbox hung or was unavailable.
func (c *Collector) noteStuck(id string) { c.noteFailed(c.stuck, id) }

// stuckAt returns the objects whose removal failed within the last stuckFor.
func (c *Collector) stuckAt(now time.Duration) map[string]bool { return c.failedAt(c.stuck, now) }

func (c *Collector) noteFailed(failed map[string]time.Duration, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failed[id] = c.clock().Boot
}

func (c *Collector) failedAt(failed map[string]time.Duration, now time.Duration) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	recently := make(map[string]bool, len(failed))
	for id, at := range failed {
		if now-at >= stuckFor {
			delete(failed, id)
			continue
		}
		recently[id] = true
	}
	return recently
}
