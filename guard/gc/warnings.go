package gc

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
	"github.com/criguard/criguard/systemd"
)

// maxWarned limits how many messages a warnOnce remembers. At the limit it forgets them all and may repeat one.
const maxWarned = 1000

// warnOnce remembers which messages were logged, so that each is logged only once. The zero value is empty.
type warnOnce map[string]bool

// first reports whether text is new, and remembers it.
func (t *warnOnce) first(text string) bool {
	if (*t)[text] {
		return false
	}
	if *t == nil || len(*t) >= maxWarned {
		*t = warnOnce{}
	}
	(*t)[text] = true
	return true
}

// warnLedger logs the first error of the image ledger, until it can be saved again. Images of unknown age are kept.
func (m *Manager) warnLedger(err error) {
	switch {
	case err == nil: // also while it fails: the ledger returns only the first error in a row
		m.warned.Store(false)
	case !m.warned.Swap(true):
		m.opt.Log.Warn("image ledger not read or saved", systemd.EventKey, systemd.EventDegraded, "action", "ledger", "reason", err.Error())
	}
}

// noSignal stands for the listings that serve no collection.
const noSignal = policy.SignalCount

// warnFailures logs the errors of a collection that removed nothing, because no record holds them. It logs each
// error once, until a collection succeeds.
func (m *Manager) warnFailures(s policy.Signal, reports []reclaim.Report) {
	reason, more, well := "", 0, len(reports) > 0
	warned := m.failures[s]
	for i := range reports {
		well = well && reports[i].Well()
		for _, f := range reports[i].Errors {
			switch {
			case f.ID == "" && errors.Is(f.Err, cri.ErrUnavailable): // the lister logs that no runtime answers
			case !warned.first(failureKey(f)):
			case reason == "":
				reason = f.Message
			default:
				more++
			}
		}
	}
	switch {
	case well:
		warned = nil
	case len(reports) == 0: // the measurement succeeded: there is nothing to do
		maps.DeleteFunc(warned, func(key string, _ bool) bool { return strings.HasPrefix(key, wholeStep) })
	}
	if m.failures[s] = warned; reason == "" {
		return
	}
	if more > 0 {
		reason = fmt.Sprintf("%s; and %d more", reason, more)
	}
	m.opt.Log.Warn("garbage collection failed", systemd.EventKey, systemd.EventDegraded, "action", "collect", "reason", reason)
}

// wholeStep is the key prefix of a failure that concerns the whole step rather than one item.
const wholeStep = "step: "

// failureKey identifies a failure. It ignores how long a timeout took, so that a repeated one is not new.
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

// collected passes on what a collection reports besides its removals.
func (m *Manager) collected(reports []reclaim.Report) {
	m.warnNotes(reports)
	if m.opt.Collected != nil && !slices.ContainsFunc(reports, func(r reclaim.Report) bool { return r.DryRun }) {
		m.opt.Collected(reports)
	}
}

// warnNotes logs each unread air-gap file once, since nothing else protects the images in it, and each
// container that holds images back.
func (m *Manager) warnNotes(reports []reclaim.Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	warn := func(msg, action string, notes []string) {
		for _, note := range notes {
			if m.notes.first(note) {
				m.opt.Log.Warn(msg, systemd.EventKey, systemd.EventDegraded, "action", action, "reason", note)
			}
		}
	}
	for i := range reports {
		warn("air-gap file not read", "airgap", reports[i].Notes)
		warn("images held back: container status unknown", "collect", reports[i].InDoubt)
	}
}
