package reclaim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
)

// usedOnly returns the used argument of Ledger.note: only these images are in use.
func usedOnly(images ...cri.Image) func(string) bool {
	return func(id string) bool {
		for _, img := range images {
			if img.ID == id {
				return true
			}
		}
		return false
	}
}

// The kubelet's own tests of the images that its garbage collector detects (M1 to M4).
func TestLedgerDetectsLikeKubelet(t *testing.T) {
	t.Parallel()
	img0, img1, img2 := image(0, 1024), image(1, 2048), image(2, 2048)
	l := newLedger("boot")
	start := time.Hour

	l.note([]cri.Image{img0, img1}, usedOnly(img1), start)
	t.Run("M1 first detection", func(t *testing.T) {
		equal(t, "known", l.known(), []string{cri.TrimID(img0.ID), cri.TrimID(img1.ID)})
		if h := l.history(img0.ID, start); h.used || h.age != 0 {
			t.Errorf("unused image: %+v", h)
		}
		if h := l.history(img1.ID, start); !h.used || h.unused != 0 || h.age != 0 {
			t.Errorf("used image: %+v", h)
		}
	})
	later := start + time.Minute
	l.note([]cri.Image{img0, img1, img2}, usedOnly(img1), later)
	t.Run("M2 an image comes", func(t *testing.T) {
		if h := l.history(img0.ID, later); h.age != time.Minute {
			t.Errorf("age of the old image: %v", h.age)
		}
		if h := l.history(img2.ID, later+time.Second); h.age != time.Second {
			t.Errorf("age of the new image: %v", h.age)
		}
	})
	last := later + time.Minute
	l.note([]cri.Image{img0, img1, img2}, usedOnly(), last)
	t.Run("M3 a container stops", func(t *testing.T) {
		if h := l.history(img1.ID, last); h.unused != time.Minute {
			t.Errorf("unused for %v", h.unused)
		}
	})
	l.note(nil, usedOnly(), last)
	t.Run("M4 all images vanish", func(t *testing.T) {
		equal(t, "known", l.known(), nil)
		if h := l.history(img1.ID, last+time.Hour); h.age != 0 || h.used {
			t.Errorf("still known: %+v", h)
		}
	})
}

func TestLedgerRemembersWhatMustNotBeForgotten(t *testing.T) {
	t.Parallel()
	img := image(0, 1)
	pinned := img
	pinned.Pinned = true
	day := 24 * time.Hour

	t.Run("a pin that the runtime lost", func(t *testing.T) {
		t.Parallel()
		l := newLedger("boot")
		if l.pinsSeen() {
			t.Error("a pin was seen by nobody")
		}
		l.note([]cri.Image{pinned}, usedOnly(), 0)
		l.note([]cri.Image{img}, usedOnly(), time.Hour)
		if h := l.history(img.ID, time.Hour); !h.pinned || !l.pinsSeen() {
			t.Error("the pin is forgotten")
		}
	})
	t.Run("a pin and a stop over a list that lacked the image", func(t *testing.T) {
		t.Parallel()
		l := newLedger("boot")
		l.note([]cri.Image{pinned}, usedOnly(), 0)
		l.NoteStopped([]string{img.ID}, time.Hour)
		l.note([]cri.Image{img}, usedOnly(), time.Hour)
		l.note(nil, usedOnly(), 2*time.Hour)
		l.note([]cri.Image{img}, usedOnly(), 3*time.Hour)
		h := l.history(img.ID, 3*time.Hour)
		if !h.pinned || !h.stopped || h.stopFor != 2*time.Hour {
			t.Errorf("forgotten: %+v", h)
		}
		if h.age != 0 {
			t.Errorf("an image that comes back is new: %+v", h)
		}
		if h := l.history(img.ID, 4*time.Hour); h.age != time.Hour {
			t.Errorf("an image that is back ages again: %+v", h)
		}
	})
	t.Run("but not for ever", func(t *testing.T) {
		t.Parallel()
		l := newLedger("boot")
		l.note([]cri.Image{pinned}, usedOnly(), 0)
		l.note(nil, usedOnly(), time.Hour)
		l.note(nil, usedOnly(), time.Hour+day)
		if h := l.history(img.ID, time.Hour+day); !h.pinned {
			t.Error("forgotten too early")
		}
		l.note(nil, usedOnly(), time.Hour+day+1)
		if h := l.history(img.ID, 2*day); h.pinned || l.pinsSeen() {
			t.Error("kept for ever")
		}
	})
	t.Run("a stop, by whatever name the container knew its image", func(t *testing.T) {
		t.Parallel()
		for _, ref := range []string{img.ID, cri.TrimID(img.ID), img.Tags[0], img.Digests[0]} {
			path := t.TempDir() + "/ledger"
			l, err := OpenLedger(path, "boot", 0)
			if err != nil {
				t.Fatal(err)
			}
			l.NoteStopped([]string{"", ref}, time.Hour)
			// The service ends before the images are listed again.
			if err := l.Save(time.Hour); err != nil {
				t.Fatal(err)
			}
			if l, err = OpenLedger(path, "boot", time.Hour); err != nil {
				t.Fatal(err)
			}
			l.note([]cri.Image{img, image(1, 1)}, usedOnly(), 3*time.Hour)
			h := l.history(img.ID, 3*time.Hour)
			if !h.stopped || h.stopFor != 2*time.Hour || !h.used || h.unused != 2*time.Hour {
				t.Errorf("%s: not noted: %+v", ref, h)
			}
			if h := l.history(image(1, 1).ID, 3*time.Hour); h.stopped || h.used {
				t.Errorf("%s: noted of another image: %+v", ref, h)
			}
			// An image that appears within a day counts, a later one does not.
			l.note([]cri.Image{img}, usedOnly(), time.Hour+day)
			if len(l.stopped) != 0 {
				t.Errorf("%s: kept for ever", ref)
			}
		}
	})
	t.Run("an unknown image is new", func(t *testing.T) {
		t.Parallel()
		if h := newLedger("boot").history("x", time.Hour); h.age != 0 || h.used || h.pinned || h.stopped {
			t.Errorf("known: %+v", h)
		}
	})
}

// Ages count from the last use or the first sighting, whichever is later.
func TestLedgerInactive(t *testing.T) {
	t.Parallel()
	img := image(0, 1)
	l := newLedger("boot")
	l.note([]cri.Image{img}, usedOnly(), time.Hour)
	if h := l.history(img.ID, 3*time.Hour); h.inactive != 2*time.Hour {
		t.Errorf("never used, seen 2h ago: inactive for %v", h.inactive)
	}
	l.note([]cri.Image{img}, usedOnly(img), 4*time.Hour)
	if h := l.history(img.ID, 5*time.Hour); h.inactive != time.Hour {
		t.Errorf("used 1h ago: inactive for %v", h.inactive)
	}
}

// The ledger's time advances with boot time, over any number of boots, and never runs backwards. It
// advances no more than the node was up.
func TestLedgerTime(t *testing.T) {
	t.Parallel()
	img := image(0, 1)
	tests := []struct {
		name        string
		wrote, read string // boot ids
		at, now     time.Duration
		passed      time.Duration
	}{
		{"restart of the service", "a", "a", 5 * time.Hour, 7 * time.Hour, 2 * time.Hour},
		{"reboot", "a", "b", 5 * time.Hour, 3 * time.Minute, 3 * time.Minute},
		{"reboot, up for longer than before", "a", "b", 5 * time.Hour, 7 * time.Hour, 7 * time.Hour},
		{"boots not told apart: the shorter", "", "", 5 * time.Hour, 7 * time.Hour, 2 * time.Hour},
		{"boots not told apart, certainly rebooted", "", "b", 5 * time.Hour, time.Hour, time.Hour},
		{"same boot, boot time went back: nothing is believed twice", "a", "a", 5 * time.Hour, time.Hour, time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir() + "/ledger.json"
			l, err := OpenLedger(path, tt.wrote, tt.at)
			if err != nil {
				t.Fatal(err)
			}
			l.note([]cri.Image{img}, usedOnly(), tt.at)
			if err := l.Save(tt.at); err != nil {
				t.Fatal(err)
			}
			l, err = OpenLedger(path, tt.read, tt.now)
			if err != nil {
				t.Fatal(err)
			}
			if h := l.history(img.ID, tt.now); h.age != tt.passed {
				t.Errorf("the image is %v old, want %v", h.age, tt.passed)
			}
		})
	}
}

// A reading from before the previous one makes no age negative.
func TestLedgerTimeNeverGoesBack(t *testing.T) {
	t.Parallel()
	img := image(0, 1)
	l := newLedger("boot")
	l.note([]cri.Image{img}, usedOnly(img), 2*time.Hour)
	if h := l.history(img.ID, time.Hour); h.age != 0 || h.unused != 0 {
		t.Errorf("an hour before it was seen: %+v", h)
	}
}

// Whatever the sequence of boots and readings, no image is ever older than the time that the node was
// really up.
func TestLedgerNeverAgesAnImage(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	img := image(0, 1)
	for round := range 100 {
		path := t.TempDir() + "/ledger.json"
		var up, boot time.Duration // how long the node was up, in total and in this boot
		boots := 0
		name := func() string {
			if round%4 == 0 {
				return "" // the boot id is unknown
			}
			return string(rune('a' + boots))
		}
		l, err := OpenLedger(path, name(), boot)
		if err != nil {
			t.Fatal(err)
		}
		l.note([]cri.Image{img}, usedOnly(), boot)
		for range 20 {
			pass := time.Duration(rng.IntN(1000)) * time.Minute
			up, boot = up+pass, boot+pass
			switch rng.IntN(4) {
			case 0: // the service restarts
				l, err = OpenLedger(path, name(), boot)
			case 1: // a power cut, and some time until the service is up
				boots++
				boot = time.Duration(rng.IntN(100)) * time.Second
				up += boot
				l, err = OpenLedger(path, name(), boot)
			case 2:
				err = l.Save(boot)
			default:
				l.note([]cri.Image{img}, usedOnly(), boot)
			}
			if err != nil {
				t.Fatal(err)
			}
			if h := l.history(img.ID, boot); h.age > up || h.age < 0 {
				t.Fatalf("the image is %v old, the node was up for %v", h.age, up)
			}
		}
	}
}

// known returns the sorted ids of the images that are present.
func (l *Ledger) known() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := slices.Sorted(maps.Keys(l.images))
	return slices.DeleteFunc(ids, func(id string) bool { return l.images[id].Gone })
}
