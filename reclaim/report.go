package reclaim

import (
	"errors"
	"slices"
	"time"
)

// Step is one way of freeing something.
type Step string

// The steps, in the order in which they run.
const (
	StepMemory     Step = "memory"     // the kernel reclaims memory of chosen cgroups
	StepContainers Step = "containers" // dead containers with their logs
	StepSandboxes  Step = "sandboxes"  // dead sandboxes
	StepLogs       Step = "logs"       // log directories whose pod is gone
	StepImages     Step = "images"     // unused images
)

// Steps lists all steps in their order.
func Steps() []Step {
	return []Step{StepMemory, StepContainers, StepSandboxes, StepLogs, StepImages}
}

// Kind is what an item is.
type Kind string

// The kinds of items.
const (
	KindCgroup    Kind = "cgroup"
	KindContainer Kind = "container"
	KindSandbox   Kind = "sandbox"
	KindLogs      Kind = "logs"
	KindImage     Kind = "image"
)

// Item is one thing that was, would be, or was not removed.
type Item struct {
	Kind Kind          `json:"kind"`
	ID   string        `json:"id"`
	Name string        `json:"name"`
	Size int64         `json:"size,omitempty"` // bytes as listed, an estimate of what it frees; 0 = not told
	Age  time.Duration `json:"age"`            // since it was made; of an image, since it was first seen
	// Used: an image was seen in use, last LastUsed ago.
	Used     bool          `json:"used,omitempty"`
	LastUsed time.Duration `json:"last_used,omitempty"`
	Why      string        `json:"why"` // it may go, or stays
}

// selection is what may go, first to go first, and what stays.
type selection struct {
	Remove, Keep []Item
}

// Failure is what went wrong with one item, or with a whole step (no Kind).
type Failure struct {
	Kind    Kind   `json:"kind,omitempty"`
	ID      string `json:"id,omitempty"`
	Name    string `json:"name,omitempty"`
	Message string `json:"error"`
	Err     error  `json:"-"` // nil when read back from a record
}

// TimedOut reports whether the runtime did not answer in time.
func (f *Failure) TimedOut() bool { return isTimeout(f.Err) }

// Report is what one step did.
type Report struct {
	Step    Step   `json:"step"`
	DryRun  bool   `json:"dry_run,omitempty"`
	Removed []Item `json:"removed,omitempty"` // in a dry run: what would be
	Kept    []Item `json:"kept,omitempty"`
	// Freed is what became available on the target's filesystem meanwhile, by
	// statfs, whoever freed or filled it; negative when more was written than
	// freed. Zero without a target and in a dry run.
	Freed       int64         `json:"freed"`
	FreedInodes int64         `json:"freed_inodes,omitempty"`
	Met         bool          `json:"met"` // the target was met when the step ended
	Errors      []Failure     `json:"errors,omitempty"`
	Notes       []string      `json:"notes,omitempty"` // which air-gap files could not be read
	Took        time.Duration `json:"took"`
	// Further items were removed, and went wrong, that a digest leaves out.
	RemovedMore int `json:"removed_more,omitempty"`
	ErrorsMore  int `json:"errors_more,omitempty"`
}

// digestLength is how many items a digest keeps of each list.
const digestLength = 20

// Digest is the report without what stayed, and with the first of the items that did not:
// small enough to be remembered for long.
func (r Report) Digest() Report {
	r.Kept = nil
	r.Removed, r.RemovedMore = head(r.Removed)
	r.Errors, r.ErrorsMore = head(r.Errors)
	return r
}

// head copies the first of a list, and counts the rest.
func head[T any](list []T) (first []T, more int) {
	n := min(len(list), digestLength)
	return slices.Clone(list[:n]), len(list) - n
}

// fail notes what went wrong with an item; with the whole step for the zero item.
func (r *Report) fail(it Item, err error) {
	r.Errors = append(r.Errors, Failure{it.Kind, it.ID, it.Name, err.Error(), err})
}

// Well reports whether nothing went wrong, neither now nor, with what is not tried again yet, a
// moment ago. A digest does not tell.
func (r *Report) Well() bool {
	return len(r.Errors) == 0 && !slices.ContainsFunc(r.Kept, func(it Item) bool { return it.Why == whyStuck })
}

// Err is all that went wrong, nil when nothing did.
func (r *Report) Err() error {
	errs := make([]error, len(r.Errors))
	for i, f := range r.Errors {
		if errs[i] = f.Err; f.Err == nil {
			errs[i] = errors.New(f.Message)
		}
	}
	return errors.Join(errs...)
}
