package reclaim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/cri"
)

// Prune says whether images may be removed.
type Prune string

// The ways to prune images. Anything else is as never.
const (
	PruneAuto   Prune = "auto"   // those that can be pulled again
	PruneAlways Prune = "always" // whether or not they can be pulled again
	PruneNever  Prune = "never"
)

// ImagePolicy says which unused images may go.
type ImagePolicy struct {
	Prune  Prune
	MinAge time.Duration // since it was first seen; younger ones stay
	// UnusedGrace is how long an image stays that was never seen in use: it may
	// have been loaded for later.
	UnusedGrace time.Duration
	// MaxAge expires an image that was not used for so long, nor seen for the first
	// time since; 0 = never.
	MaxAge     time.Duration
	Keep       []string      // patterns with * and ? over the names of images that stay
	AirGapDirs []string      // directories with images that no registry may have
	Hold       time.Duration // after a start of the runtime, while it may not list all yet
}

// heldBefore is how long before the runtime went an image may have been used last for the hold to
// keep it: after a power cut the ledger is as it was up to an hour before, and a pod may
// have been between two starts.
const heldBefore = 2 * time.Hour

// stoppedGrace is how long the images of a sandbox that we stopped stay.
const stoppedGrace = 24 * time.Hour

// imageUse is what speaks for images, beside the ledger and their own stamps.
type imageUse struct {
	Containers    []cri.Container       // dead or alive, as listed
	Details       []cri.ContainerDetail // of those with image volumes
	SandboxImages []string              // of the runtime's configuration and of every sandbox
	AirGap        []string              // names that files on this node carry
	Stuck         map[string]bool       // ids whose last removal did not work
	Hold          string                // why none may go; "" = nothing holds them
	// Away: under pressure the hold keeps those alone that were used, or came, shortly before the
	// runtime was listed last before its start, so long ago, or since; 0 = it keeps all.
	Away time.Duration
}

// needed tells which images are in use, by id, and by what.
func (u imageUse) needed(images []cri.Image) map[string]cri.ImageNeed {
	return cri.InUse(images, cri.ImageNeeds(u.Containers, u.Details, u.SandboxImages))
}

// held is how long ago an image that the hold keeps may have been used, or have come, at most, by
// the ledger's time, in which nothing passes while the node is off.
func (u imageUse) held() time.Duration {
	if u.Away <= 0 {
		return math.MaxInt64
	}
	return u.Away + heldBefore
}

// Verdict is what is decided of one image. Item.Why says why it may go or stays.
type Verdict struct {
	Item
	Removable bool      `json:"removable"`
	Expired   bool      `json:"expired,omitempty"`  // past max_age: goes though no space is needed
	Position  int       `json:"position,omitempty"` // 1 = goes first; 0 = stays
	Image     cri.Image `json:"-"`
}

// judgeImages gives every image a verdict: those that may go first, the least
// recently used one first (never used ones before, then the longest known, then by
// id), as the kubelet orders them; then those that stay, by id.
func judgeImages(images []cri.Image, use imageUse, p ImagePolicy, l *Ledger, now time.Duration) []Verdict {
	j := newJudge(images, use, p, l)
	vs := make([]Verdict, len(images))
	for i, img := range images {
		vs[i] = j.verdict(img, l.history(img.ID, now))
	}
	slices.SortFunc(vs, func(a, b Verdict) int {
		if !a.Removable && !b.Removable {
			return strings.Compare(a.ID, b.ID)
		}
		return cmp.Or(boolFirst(a.Removable, b.Removable), boolFirst(!a.Used, !b.Used),
			-cmp.Compare(a.LastUsed, b.LastUsed), -cmp.Compare(a.Age, b.Age), strings.Compare(a.ID, b.ID))
	})
	for i := range vs {
		if vs[i].Removable {
			vs[i].Position = i + 1
		}
	}
	return vs
}

func boolFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// judge holds what is the same for all images.
type judge struct {
	policy       ImagePolicy
	use          imageUse
	needed       map[string]cri.ImageNeed
	fromFiles    map[string]cri.ImageNeed
	sandboxKnown bool
}

func newJudge(images []cri.Image, use imageUse, p ImagePolicy, l *Ledger) judge {
	files := make([]cri.ImageNeed, len(use.AirGap))
	for i, name := range use.AirGap {
		files[i] = cri.ImageNeed{Ref: name}
	}
	pinned := slices.ContainsFunc(images, func(i cri.Image) bool { return i.Pinned })
	return judge{
		policy: p, use: use, needed: use.needed(images), fromFiles: cri.InUse(images, files),
		sandboxKnown: len(use.SandboxImages) > 0 || pinned || l.pinsSeen(),
	}
}

func (j *judge) verdict(img cri.Image, h history) Verdict {
	v := Verdict{Image: img, Item: Item{
		Kind: KindImage, ID: img.ID, Name: displayName(img), Size: img.Size,
		Age: h.age, Used: h.used, LastUsed: h.unused,
	}}
	if !h.used {
		v.LastUsed = 0
	}
	if v.Why = j.keeps(img, h); v.Why != "" {
		return v
	}
	v.Removable, v.Why = true, "not in use"
	if v.Expired = j.policy.MaxAge > 0 && h.inactive > j.policy.MaxAge; v.Expired {
		v.Why = "not in use for longer than max_age"
	}
	return v
}

// keeps says why an image stays; "" = nothing speaks for it. What is true of the
// image itself comes before what holds it for a while.
func (j *judge) keeps(img cri.Image, h history) string {
	if need, ok := j.needed[img.ID]; ok {
		return "in use: " + need.By
	}
	switch {
	case slices.ContainsFunc(names(img), func(n string) bool { return isPause(cri.ParseReference(n)) }):
		return "a sandbox image, by its name"
	case img.Pinned:
		return "pinned"
	case h.pinned:
		return "was pinned before"
	}
	for _, pattern := range j.policy.Keep {
		if MatchesImage(pattern, img) {
			return fmt.Sprintf("kept by %q", pattern)
		}
	}
	remains := h.removing && len(names(img)) == 0
	if j.policy.Prune != PruneAlways && !remains {
		if why := j.unpullable(img); why != "" {
			return "cannot be pulled again: " + why
		}
	}
	switch {
	case h.age < j.policy.MinAge:
		return "younger than min_age"
	case !h.used && h.age < j.policy.UnusedGrace:
		return "never used and younger than unused_grace"
	case h.stopped && h.stopFor < stoppedGrace:
		return "used by a sandbox that was stopped under pressure in the last 24h"
	case j.policy.Prune != PruneAuto && j.policy.Prune != PruneAlways:
		return "pruning is switched off"
	case j.use.Hold != "" && h.inactive <= j.use.held():
		return j.use.Hold
	case !j.sandboxKnown:
		return "which image the sandboxes use is not known"
	case j.use.Stuck[img.ID]:
		return whyStuck
	}
	return ""
}

// unpullable says why an image cannot be had again, when some of its names can be
// had from this node alone.
func (j *judge) unpullable(img cri.Image) string {
	if len(img.Digests) == 0 {
		return "it has no repository digest"
	}
	if _, ok := j.fromFiles[img.ID]; ok {
		return "it came from an air-gap file"
	}
	repos := make(map[string]bool, len(img.Digests))
	for _, d := range img.Digests {
		repos[repository(cri.ParseReference(d))] = true
	}
	for _, name := range names(img) {
		r := cri.ParseReference(name)
		if isLocal(r) {
			return name + " is a local name"
		}
		if slices.Contains(img.Tags, name) && !repos[repository(r)] {
			return name + " has no repository digest"
		}
	}
	return ""
}
