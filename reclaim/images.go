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

// Prune decides whether images may be removed.
type Prune string

// The ways to prune images. Any other value means never.
const (
	PruneAuto   Prune = "auto"   // those that can be pulled again
	PruneAlways Prune = "always" // whether or not they can be pulled again
	PruneNever  Prune = "never"
)

// ImagePolicy decides which unused images are removed.
type ImagePolicy struct {
	Prune  Prune
	MinAge time.Duration // since the first sighting; younger ones stay
	// UnusedGrace is how long an image stays that was never seen in use: it may have been loaded for
	// later.
	UnusedGrace time.Duration
	// MaxAge expires an image that was neither used nor first seen for this long; 0 = never.
	MaxAge     time.Duration
	Keep       []string      // patterns with * and ? for the names of images that stay
	AirGapDirs []string      // directories with images that no registry may have
	Hold       time.Duration // after a start of the runtime, while its listing may be incomplete
}

// heldBefore extends the hold to images that were last used up to this long before the runtime went
// away: after a power cut the ledger may be an hour old, and a pod may have been between two starts.
const heldBefore = 2 * time.Hour

// justNow is the age below which an image was first seen by the listing that is being judged: its age is unknown.
const justNow = time.Second

// WhyAgeUnknown begins the reason to keep an image that no earlier listing showed, for its age.
const WhyAgeUnknown = "age unknown, first seen just now"

// Other reasons to keep an image for its age.
const (
	whyYoung     = "younger than min_age"
	whyNeverUsed = "never used and younger than unused_grace"
)

// stoppedGrace is how long the images of a sandbox that criguard stopped stay.
const stoppedGrace = 24 * time.Hour

// imageUse is the evidence for keeping images, besides the ledger and their own timestamps.
type imageUse struct {
	Containers    []cri.Container       // running or exited, as listed
	Details       []cri.ContainerDetail // of containers with image volumes
	SandboxImages []string              // from the runtime's configuration and every sandbox
	Doubts        []doubt               // containers that may have image volumes
	Pods          map[string]string     // namespace/name by sandbox
	// Absent is by image: when a listing last lacked it, in boot time; 0 = never.
	Absent     map[string]time.Duration
	AirGap     []string        // names from files on this node
	AirGapHold string          // why the images from files are unknown; "" = they are known
	Stuck      map[string]bool // ids whose last removal failed
	Hold       string          // why all images stay; "" = there is no hold
	// Away limits the hold under pressure: it then keeps only images that were used or first seen since
	// shortly before the last listing of images ahead of the runtime's start. Away is the time since
	// that listing; 0 = the hold keeps all.
	Away time.Duration
}

// needed returns the images in use, by id, with one need each.
func (u imageUse) needed(images []cri.Image) map[string]cri.ImageNeed {
	return cri.InUse(images, cri.ImageNeeds(u.Containers, u.Details, u.SandboxImages))
}

// doubtful returns a container that may have mounted the image. A container that existed while the
// image was absent did not: images are pulled before the container is created.
func (u imageUse) doubtful(image string) (doubt, bool) {
	i := slices.IndexFunc(u.Doubts, func(d doubt) bool { return u.Absent[image] < d.since })
	if i < 0 {
		return doubt{}, false
	}
	return u.Doubts[i], true
}

// held is the maximum age of the last use or first sighting for which the hold keeps an image. It is in
// the ledger's time, which stands still while the node is off.
func (u imageUse) held() time.Duration {
	if u.Away <= 0 {
		return math.MaxInt64
	}
	return u.Away + heldBefore
}

// Verdict is the decision about one image, with its reason.
type Verdict struct {
	Item
	Removable bool      `json:"removable"`          // it may be removed when space is needed
	Expired   bool      `json:"expired,omitempty"`  // past max_age: removed even if no space is needed
	Position  int       `json:"position,omitempty"` // 1 = removed first; 0 = stays
	Image     cri.Image `json:"-"`
}

// judgeImages gives every image a verdict. Removable images come first, in the kubelet's order: never
// used ones, then the least recently used, then the longest known, then by id. The images that stay
// follow, by id.
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

// ImageFacts are what an ImagePolicy looks at in one image.
type ImageFacts struct {
	Image      cri.Image
	InUse      string        // what uses it; "" = nothing
	WasPinned  bool          // now or ever
	Unpullable string        // why it cannot be pulled again; "" = it can
	Age        time.Duration // since the first sighting
	Used       bool          // a container has used it since then
	Doubt      string        // why it is better kept for now; "" = no doubt
}

// Keeps returns why an image stays; "" = no reason. Permanent reasons come before temporary ones. A doubt is added to its age,
// because a manual prune may ignore that.
func (p *ImagePolicy) Keeps(f *ImageFacts) string {
	switch {
	case f.InUse != "":
		return "in use: " + f.InUse
	case slices.ContainsFunc(names(f.Image), func(n string) bool { return isPause(cri.ParseReference(n)) }):
		return "a sandbox image, by its name"
	case f.Image.Pinned:
		return "pinned"
	case f.WasPinned:
		return "was pinned before"
	}
	for _, pattern := range p.Keep {
		if MatchesImage(pattern, f.Image) {
			return fmt.Sprintf("kept by %q", pattern)
		}
	}
	young := f.Age < p.MinAge || !f.Used && f.Age < p.UnusedGrace
	andDoubt := func(why string) string { return strings.TrimSuffix(why+"; "+f.Doubt, "; ") }
	switch {
	case p.Prune != PruneAlways && f.Unpullable != "":
		return "cannot be pulled again: " + f.Unpullable
	case young && f.Age < justNow:
		return andDoubt(WhyAgeUnknown)
	case f.Age < p.MinAge:
		return andDoubt(whyYoung)
	case young:
		return andDoubt(whyNeverUsed)
	case p.Prune != PruneAuto && p.Prune != PruneAlways:
		return "pruning is switched off"
	}
	return f.Doubt
}

// judge holds the inputs that are the same for all images.
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
		Age: Duration(h.age), AgeUnknown: h.age < justNow, Used: h.used, LastUsed: Duration(h.unused),
	}}
	if !h.used {
		v.LastUsed = 0
	}
	if v.Why = j.policy.Keeps(j.facts(img, h)); v.Why != "" {
		return v
	}
	v.Removable, v.Why = true, "not in use"
	if v.Expired = j.policy.MaxAge > 0 && h.inactive > j.policy.MaxAge; v.Expired {
		v.Why = "not in use for longer than max_age"
	}
	return v
}

func (j *judge) facts(img cri.Image, h history) *ImageFacts {
	f := &ImageFacts{
		Image: img, WasPinned: h.pinned, Unpullable: Unpullable(img), Age: h.age, Used: h.used, Doubt: j.doubt(img, h),
	}
	if need, ok := j.needed[img.ID]; ok {
		f.InUse = need.By
		if pod := j.use.Pods[need.Sandbox]; pod != "" {
			f.InUse += " of " + pod
		}
	}
	if _, ok := j.fromFiles[img.ID]; ok && f.Unpullable != noDigest {
		f.Unpullable = "it came from an air-gap file"
	}
	if h.removing && len(names(img)) == 0 {
		f.Unpullable = "" // what is left of an image that criguard began to remove
	}
	return f
}

// doubt returns why an image is better kept for now, although the policy lets it go; "" = no doubt.
func (j *judge) doubt(img cri.Image, h history) string {
	switch {
	case h.stopped && h.stopFor < stoppedGrace:
		return "used by a pod that was stopped under pressure in the last 24h"
	case j.policy.Prune == PruneAuto && j.use.AirGapHold != "":
		return j.use.AirGapHold
	case j.use.Hold != "" && h.inactive <= j.use.held():
		return j.use.Hold
	case !j.sandboxKnown:
		return "which image the sandboxes use is not known"
	case j.use.Stuck[img.ID]:
		return whyStuck
	}
	if d, ok := j.use.doubtful(img.ID); ok {
		return "may be an image volume of container " + d.name + ", whose status the runtime does not give"
	}
	return ""
}

const noDigest = "it has no repository digest"

// Unpullable returns why an image cannot be pulled again: some of its names exist only on this node. "" = it
// can, unless it came from a file.
func Unpullable(img cri.Image) string {
	if len(img.Digests) == 0 {
		return noDigest
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
