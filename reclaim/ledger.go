package reclaim

import (
	"slices"
	"sync"
	"time"

	"github.com/criguard/criguard/cri"
)

// forgetGone is how long the ledger keeps an image's pin, and its use by a sandbox that criguard
// stopped, after the image is gone: a restarted runtime lists its images one after another.
const forgetGone = 24 * time.Hour

// Ledger remembers of each image when it was first seen and last used, whether it was ever pinned, and
// when criguard stopped a sandbox that used it. Its own time is the boot time of this boot plus that of
// all boots before. It advances only while the node runs and cannot be set, so a missing or jumping
// clock never makes an image look older than it was seen to be. An unknown image is new. A ledger is
// safe for concurrent use.
type Ledger struct {
	mu     sync.Mutex
	boot   string        // the boot to which boot times belong
	before time.Duration // the total of earlier boots
	images map[string]record
	// stopped maps the image names used by sandboxes that criguard stopped to the time of the stop. The
	// next listing resolves them to images.
	stopped map[string]time.Duration
	latest  time.Duration // the newest time so far: time never runs backwards
	noted   time.Duration // when the images were last listed, in the ledger's time
	// gap is the last long period without a listing, such as an absence of the runtime.
	gap struct{ from, to time.Duration }

	file   ledgerFile
	dirty  bool
	urgent bool          // save at once: a stop, or a failed save
	saved  time.Duration // when, in the ledger's time
}

// record is the memory of one image, in the ledger's time.
type record struct {
	FirstSeen time.Duration `json:"first_seen"`
	LastUsed  time.Duration `json:"last_used,omitempty"`
	Used      bool          `json:"used,omitempty"`
	Pinned    bool          `json:"pinned,omitempty"` // now or ever
	// StoppedAt is when criguard stopped a sandbox that used it.
	StoppedAt time.Duration `json:"stopped_at,omitempty"`
	Stopped   bool          `json:"stopped,omitempty"`
	Removing  bool          `json:"removing,omitempty"` // criguard began to remove it
	// GoneAt is when a listing first lacked it.
	GoneAt time.Duration `json:"gone_at,omitempty"`
	Gone   bool          `json:"gone,omitempty"`
}

// newLedger returns an empty ledger that is never saved. The boot id distinguishes boots
// (/proc/sys/kernel/random/boot_id); "" = unknown.
func newLedger(boot string) *Ledger {
	return &Ledger{boot: boot, images: map[string]record{}, stopped: map[string]time.Duration{}}
}

// time converts a time since boot to the ledger's time.
func (l *Ledger) time(now time.Duration) time.Duration {
	l.latest = max(l.latest, l.before+now)
	return l.latest
}

// note records which images exist and which of them, by Image.ID, are in use.
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
			// It came back after it was gone: it was pulled again and counts as new.
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
	l.dirty = true // at least the time has advanced
}

// isForeign reports whether images have nothing in common with those of before. Without a pod beside them, they do not show that those of
// before are gone: another runtime of the node may answer until its own one has started, or the images' disk may not be mounted yet.
func (l *Ledger) isForeign(images []cri.Image) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.images) > 0 && !slices.ContainsFunc(images, func(img cri.Image) bool {
		r, known := l.images[cri.TrimID(img.ID)]
		return known && !r.Gone
	})
}

// noteGap is the longest pause between two listings of the images in normal operation: garbage
// collection lists them every minute.
const noteGap = 5 * time.Minute

// away returns how long ago the images were last listed before the runtime's start. started is the time
// since that start.
func (l *Ledger) away(now, started time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.time(now)
	if l.gap.to < at-started {
		return started
	}
	return max(at-l.gap.from, started)
}

// NoteStopped records that criguard stopped a sandbox, and by which names (ids, tags, digests) its
// containers know their images. It neither calls the runtime nor writes the file, so that it can run
// alongside a kill; SaveDue writes it.
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

// findStopped marks the images of sandboxes that criguard stopped.
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

// noteRemoving records that an image is about to be removed: an interrupted removal leaves an image
// without names.
func (l *Ledger) noteRemoving(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id = cri.TrimID(id)
	if r, ok := l.images[id]; ok {
		r.Removing = true
		l.images[id], l.dirty = r, true
	}
}

// history is the ledger's memory of an image, as ages.
type history struct {
	age      time.Duration // since the first sighting; 0 for an unknown image
	used     bool
	unused   time.Duration // since it was last seen in use, meaningless unless used
	pinned   bool          // now or ever
	removing bool          // criguard began to remove it
	stopped  bool          // used by a sandbox that criguard stopped
	stopFor  time.Duration // since then, meaningless unless stopped
	inactive time.Duration // since the last use or the first sighting, whichever is later
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

// Empty reports whether the ledger knows no image.
func (l *Ledger) Empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.images) == 0
}

// pinsSeen reports whether any image was ever seen pinned: older runtimes cannot pin.
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
