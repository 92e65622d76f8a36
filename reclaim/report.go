package reclaim

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

// Step is one way to free something.
type Step string

// The steps, in the order in which they run.
const (
	StepMemory     Step = "memory"     // the kernel reclaims memory of selected cgroups
	StepContainers Step = "containers" // dead containers with their logs
	StepSandboxes  Step = "sandboxes"  // dead sandboxes
	StepLogs       Step = "logs"       // log directories of pods that are gone
	StepImages     Step = "images"     // unused images
)

// StepCgroups removes empty cgroups of pods that are gone. It needs no runtime and is not a step of a
// plan.
const StepCgroups Step = "cgroups"

// Steps returns all steps of a plan in their order.
func Steps() []Step {
	return []Step{StepMemory, StepContainers, StepSandboxes, StepLogs, StepImages}
}

// Kind is the type of an item.
type Kind string

// The kinds of items.
const (
	KindCgroup    Kind = "cgroup"
	KindContainer Kind = "container"
	KindSandbox   Kind = "sandbox"
	KindLogs      Kind = "logs"
	KindImage     Kind = "image"
)

// Item is one object that was, would be, or was not removed.
type Item struct {
	Kind       Kind     `json:"kind"`                        // cgroup, container, sandbox, logs or image
	ID         string   `json:"id"`                          // in the runtime
	Name       string   `json:"name"`                        // for people
	Size       int64    `json:"size,omitempty" unit:"bytes"` // bytes as listed, an estimate of the space it frees; 0 = not reported
	Age        Duration `json:"age"`                         // since its creation; for an image, since it was first seen
	Used       bool     `json:"used,omitempty"`              // the image was seen in use
	LastUsed   Duration `json:"last_used,omitempty"`         // time since an image was last seen in use
	AgeUnknown bool     `json:"age_unknown,omitempty"`       // no earlier listing showed the image
	Why        string   `json:"why"`                         // the reason for its removal, or for keeping it
}

// selection holds the items to remove, in order, and those to keep.
type selection struct {
	Remove, Keep []Item
}

// Failure is an error with one item, or with a whole step if it names no item.
type Failure struct {
	Kind    Kind   `json:"kind,omitempty"` // of the item
	ID      string `json:"id,omitempty"`   // of the item
	Name    string `json:"name,omitempty"` // of the item
	Message string `json:"error"`          // what failed
	Err     error  `json:"-"`              // nil when read back from a record
}

// TimedOut reports whether the runtime did not answer in time.
func (f *Failure) TimedOut() bool { return isTimeout(f.Err) }

// Report is the result of one step.
type Report struct {
	Step    Step   `json:"step"`               // memory, containers, sandboxes, logs, images or cgroups
	DryRun  bool   `json:"dry_run,omitempty"`  // nothing was removed
	Removed []Item `json:"removed,omitempty"`  // in a dry run: what would be removed
	Kept    []Item `json:"kept,omitempty"`     // what stays, and why
	KeptFor []Kept `json:"kept_for,omitempty"` // in a digest of a step that removed nothing: what stays, by reason
	// The space that came back on the target's filesystem, by statfs before and after each removal:
	// concurrent writes hide a part of it, but never make it negative. It is zero
	// without a target or in a dry run.
	Freed       int64     `json:"freed" unit:"bytes"`
	FreedInodes int64     `json:"freed_inodes,omitempty" unit:"inodes"` // likewise
	Met         bool      `json:"met"`                                  // the target was met when the step ended
	AtMost      bool      `json:"at_most,omitempty"`                    // a dry run for inodes: fewer images may be enough, as what each frees is not known
	Errors      []Failure `json:"errors,omitempty"`                     // removals that failed
	Notes       []string  `json:"notes,omitempty"`                      // the air-gap files that could not be read
	InDoubt     []string  `json:"in_doubt,omitempty"`                   // no status: images that they may have mounted are kept
	Took        Duration  `json:"took"`                                 // how long it took
	Unread      bool      `json:"-"`                                    // air-gap files are still being read, and all images stay until then
	RemovedMore int       `json:"removed_more,omitempty"`               // number of removed items that are left out
	ErrorsMore  int       `json:"errors_more,omitempty"`                // number of errors that are left out
}

// round rounds the ages for a report: they are no more exact than a millisecond.
func (it *Item) round() {
	it.Age, it.LastUsed = it.Age.Round(time.Millisecond), it.LastUsed.Round(time.Millisecond)
}

// Kept is how many items stay for the same reason.
type Kept struct {
	Why   string `json:"why"`                         // the reason, without details of single items
	Items int    `json:"items"`                       // how many
	Size  int64  `json:"size,omitempty" unit:"bytes"` // of all of them, as listed
}

// keptFor counts the items by reason, most first.
func keptFor(items []Item) (all []Kept) {
	for _, it := range items {
		why, _, _ := strings.Cut(it.Why, ": ")
		i := slices.IndexFunc(all, func(k Kept) bool { return k.Why == why })
		if i < 0 {
			i, all = len(all), append(all, Kept{Why: why})
		}
		all[i].Items++
		all[i].Size += it.Size
	}
	slices.SortFunc(all, func(a, b Kept) int {
		return cmp.Or(cmp.Compare(b.Items, a.Items), strings.Compare(a.Why, b.Why))
	})
	return all
}

// digestLength is how many items of each list a digest keeps.
const digestLength = 20

// Digest returns the report with only the first of the removed items and errors, and with the reasons for the items
// that were kept if nothing was removed: small enough to keep for long.
func (r Report) Digest() Report {
	if len(r.Removed) == 0 {
		r.KeptFor, _ = head(keptFor(r.Kept))
	}
	r.Kept = nil
	r.Removed, r.RemovedMore = head(r.Removed)
	r.Errors, r.ErrorsMore = head(r.Errors)
	return r
}

// head copies the first elements of a list and counts the rest.
func head[T any](list []T) (first []T, more int) {
	n := min(len(list), digestLength)
	return slices.Clone(list[:n]), len(list) - n
}

// fail records an error with an item, or with the whole step for the zero item.
func (r *Report) fail(it Item, err error) {
	r.Errors = append(r.Errors, Failure{it.Kind, it.ID, it.Name, err.Error(), err})
}

// Well reports whether nothing failed, neither in this run nor recently: an item that is kept because
// its last removal failed counts, too. A digest lacks the kept items, so its result is not reliable.
func (r *Report) Well() bool {
	return len(r.Errors) == 0 && !slices.ContainsFunc(r.Kept, func(it Item) bool { return it.Why == whyStuck })
}

// YoungImages returns how many images are kept only because they are too young or of unknown age, and their
// bytes as listed. A digest lacks the kept items.
func (r *Report) YoungImages() (images int, bytes int64) {
	for _, it := range r.Kept {
		if it.Kind == KindImage && (it.Why == whyYoung || it.Why == whyNeverUsed || it.Why == WhyAgeUnknown) {
			images, bytes = images+1, bytes+it.Size
		}
	}
	return images, bytes
}

// Err returns all errors, joined; nil if there were no errors.
func (r *Report) Err() error {
	errs := make([]error, len(r.Errors))
	for i, f := range r.Errors {
		if errs[i] = f.Err; f.Err == nil {
			errs[i] = errors.New(f.Message)
		}
	}
	return errors.Join(errs...)
}
