package reclaim

import (
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
)

// forgetGone is how long what must not be forgotten of an image (that it was
// pinned, that a sandbox we stopped used it) is kept after the image is gone: a
// runtime that restarts lists its images one after another.
const forgetGone = 24 * time.Hour

// Ledger remembers of each image when it was first seen and last used, whether it
// was ever pinned, and when a sandbox that we stopped used it. Its time is its own:
// the boot time of this boot, and of all boots before, added up. It goes on only
// while the node runs, and nothing sets it, so that a clock that jumps, or none at
// all, makes no image older than it was seen to be. An image it does not know is
// new. It may be used from several goroutines.
type Ledger struct {
	mu     sync.Mutex
	boot   string        // the boot now.Boot is of
	before time.Duration // what earlier boots add up to
	images map[string]record
	// stopped is by which names sandboxes that we stopped knew their images, and
	// when: which images that are, the next listing tells.
	stopped map[string]time.Duration
	latest  time.Duration // the latest time told: time never goes back
	noted   time.Duration // when the images were listed last, by the ledger's time
	// gap is the last time for long that they were not, as while the runtime was away.
	gap struct{ from, to time.Duration }

	file   ledgerFile
	dirty  bool
	urgent bool          // to be saved at once: a stop, or what could not be saved
	saved  time.Duration // when, by the ledger's time
}

// record is what is remembered of one image, in the ledger's time.
type record struct {
	FirstSeen time.Duration `json:"first_seen"`
	LastUsed  time.Duration `json:"last_used,omitempty"`
	Used      bool          `json:"used,omitempty"`
	Pinned    bool          `json:"pinned,omitempty"` // now or ever
	// StoppedAt is when a sandbox that used it was stopped by us.
	StoppedAt time.Duration `json:"stopped_at,omitempty"`
	Stopped   bool          `json:"stopped,omitempty"`
	Removing  bool          `json:"removing,omitempty"` // we began to remove it
	// GoneAt is when the runtime was first seen to list it no more.
	GoneAt time.Duration `json:"gone_at,omitempty"`
	Gone   bool          `json:"gone,omitempty"`
}

// newLedger returns a ledger that knows nothing and is never saved. The boot id
// tells boots apart (/proc/sys/kernel/random/boot_id); "" = not known.
func newLedger(boot string) *Ledger {
	return &Ledger{boot: boot, images: map[string]record{}, stopped: map[string]time.Duration{}}
}

// time is the ledger's time at a time since boot.
func (l *Ledger) time(now time.Duration) time.Duration {
	l.latest = max(l.latest, l.before+now)
	return l.latest
}

// note takes in which images there are, and which of them, by Image.ID, are in use.
func (l *Ledger) note(images []cri.Image, used func(id string) bool, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.time(now)
	if at-l.noted > noteGap {
		l.gap.from, l.gap.to = l.noted, at
	}
	l.noted = at
	present := make(map[string]bool, len(images))
	for _, img := range images {
		id := cri.TrimID(img.ID)
		present[id] = true
		r, known := l.images[id]
		if !known || r.Gone {
			// Back after it was gone: pulled anew, and as new as any other.
			r = record{FirstSeen: at, Pinned: r.Pinned, Stopped: r.Stopped, StoppedAt: r.StoppedAt}
		}
		r.Pinned = r.Pinned || img.Pinned
		if used(img.ID) {
			r.Used, r.LastUsed, r.Removing = true, at, false
		}
		l.images[id] = r
	}
	l.findStopped(images, at)
	for id, r := range l.images {
		switch {
		case present[id]:
		case !r.Gone && (r.Pinned || r.Stopped):
			r.Gone, r.GoneAt = true, at
			l.images[id] = r
		case !r.Gone || at-r.GoneAt > forgetGone:
			delete(l.images, id)
		}
	}
	l.dirty = true // at least the time went on
}

// noteGap is how long nobody lists the images where nothing is wrong, at most: the housekeeper does each minute.
const noteGap = 5 * time.Minute

// away is how long ago the images were listed last before the runtime's start, which was so long ago.
func (l *Ledger) away(now, started time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.time(now)
	if l.gap.to < at-started {
		return started
	}
	return max(at-l.gap.from, started)
}

// NoteStopped takes in that a sandbox was stopped by us, and by which names (ids,
// tags, digests) its containers know their images. It asks nobody and writes nothing, so
// that it can stand beside a kill; SaveDue writes it.
func (l *Ledger) NoteStopped(refs []string, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.time(now)
	for _, ref := range refs {
		if ref != "" {
			l.stopped[ref], l.dirty, l.urgent = at, true, true
		}
	}
}

// findStopped marks the images of sandboxes that we stopped.
func (l *Ledger) findStopped(images []cri.Image, at time.Duration) {
	if len(l.stopped) == 0 {
		return
	}
	matcher := cri.NewImageMatcher(images)
	for ref, stopped := range l.stopped {
		for _, i := range matcher.Match(ref) {
			id := cri.TrimID(images[i].ID)
			r := l.images[id]
			r.Used, r.LastUsed = true, max(r.LastUsed, stopped)
			r.Stopped, r.StoppedAt = true, max(r.StoppedAt, stopped)
			l.images[id] = r
		}
		if at-stopped >= stoppedGrace {
			delete(l.stopped, ref)
		}
	}
}

// noteRemoving takes in that an image is about to be removed: what an
// interrupted removal leaves behind has no name any more.
func (l *Ledger) noteRemoving(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id = cri.TrimID(id)
	if r, ok := l.images[id]; ok {
		r.Removing = true
		l.images[id], l.dirty = r, true
	}
}

// history is what the ledger knows of an image, as ages.
type history struct {
	age      time.Duration // since it was first seen; 0 for an unknown image
	used     bool
	unused   time.Duration // since it was last seen in use, meaningless unless used
	pinned   bool          // now or ever
	removing bool          // we began to remove it
	stopped  bool          // used by a sandbox we stopped
	stopFor  time.Duration // since then, meaningless unless stopped
	inactive time.Duration // since it was last used, or first seen when that is later
}

func (l *Ledger) history(image string, now time.Duration) history {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.time(now)
	r, ok := l.images[cri.TrimID(image)]
	if !ok || r.Gone {
		return history{pinned: r.Pinned, stopped: r.Stopped, stopFor: at - r.StoppedAt}
	}
	h := history{
		age: at - r.FirstSeen, used: r.Used, unused: at - r.LastUsed,
		pinned: r.Pinned, removing: r.Removing, stopped: r.Stopped, stopFor: at - r.StoppedAt,
	}
	h.inactive = h.age
	if h.used {
		h.inactive = min(h.age, h.unused)
	}
	return h
}

// pinsSeen reports whether any image was ever seen pinned: older runtimes cannot
// pin.
func (l *Ledger) pinsSeen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.images {
		if r.Pinned {
			return true
		}
	}
	return false
}
