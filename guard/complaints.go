package guard

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/systemd"
)

// maxTold bounds what a teller remembers: then it tells anew.
const maxTold = 1000

// teller remembers what it has told, so that nothing is told twice. The zero value has told
// nothing.
type teller map[string]bool

// first reports whether a text is told for the first time.
func (t *teller) first(text string) bool {
	if (*t)[text] {
		return false
	}
	if *t == nil || len(*t) >= maxTold {
		*t = teller{}
	}
	(*t)[text] = true
	return true
}

// complain tells once that the ledger is not as it should be: images of unknown
// age are kept.
func (h *housekeeper) complain(err error) {
	h.mu.Lock()
	told := h.told
	h.told = true
	h.mu.Unlock()
	if !told {
		h.log.Warn("image ledger is not kept as it should be", systemd.EventKey, systemd.EventDegraded, "action", "ledger", "reason", err.Error())
	}
}

// complainOf tells of a collection that removed nothing and went wrong, which no record does: each
// error once, until a collection goes well.
func (h *housekeeper) complainOf(s policy.Signal, reports []reclaim.Report) {
	reason, more, well := "", 0, len(reports) > 0
	told := h.failures[s]
	for i := range reports {
		well = well && reports[i].Well()
		for _, f := range reports[i].Errors {
			switch {
			case errors.Is(f.Err, cri.ErrUnavailable): // the lister tells that no runtime answers
			case !told.first(failureKey(f)):
			case reason == "":
				reason = f.Message
			default:
				more++
			}
		}
	}
	switch {
	case well:
		told = nil
	case len(reports) == 0: // that there is nothing to do could be measured
		maps.DeleteFunc(told, func(key string, _ bool) bool { return strings.HasPrefix(key, wholeStep) })
	}
	if h.failures[s] = told; reason == "" {
		return
	}
	if more > 0 {
		reason = fmt.Sprintf("%s; and %d more", reason, more)
	}
	h.log.Warn("what nobody needs is not removed", systemd.EventKey, systemd.EventDegraded, "action", "collect", "reason", reason)
}

// wholeStep begins the key of what went wrong with no item.
const wholeStep = "step: "

// failureKey is what makes a failure another one: not how long was waited for.
func failureKey(f reclaim.Failure) string {
	key := f.Message
	if f.TimedOut() {
		key = string(f.Kind) + " " + f.ID + " hangs"
	}
	if f.ID == "" {
		key = wholeStep + key
	}
	return key
}

// tellNotes tells once of each air-gap file that was not read: nothing else keeps the images in it.
func (h *housekeeper) tellNotes(reports []reclaim.Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range reports {
		for _, note := range reports[i].Notes {
			if h.notes.first(note) {
				h.log.Warn("air-gap file is not read", systemd.EventKey, systemd.EventDegraded, "action", "airgap", "reason", note)
			}
		}
	}
}
