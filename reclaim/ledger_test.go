package reclaim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
)

// usedOnly gives what Ledger.Note asks for: these images are in use.
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

// The kubelet's own tests of what its image garbage collector detects (M1 to
// M4).
func TestLedgerDetectsLikeKubelet(t *testing.T) {
	t.Parallel()
	img0, img1, img2 := image(0, 1024), image(1, 2048), image(2, 2048)
	l := NewLedger("boot")
	start := time.Hour

	l.Note([]cri.Image{img0, img1}, usedOnly(img1), start)
	t.Run("M1 first detection", func(t *testing.T) {
		equal(t, "known", l.Images(), []string{cri.TrimID(img0.ID), cri.TrimID(img1.ID)})
		if h := l.history(img0.ID, start); h.used || h.age != 0 {
			t.Errorf("unused image: %+v", h)
		}
		if h := l.history(img1.ID, start); !h.used || h.unused != 0 || h.age != 0 {
			t.Errorf("used image: %+v", h)
		}
	})
	later := start + time.Minute
	l.Note([]cri.Image{img0, img1, img2}, usedOnly(img1), later)
	t.Run("M2 an image comes", func(t *testing.T) {
		if h := l.history(img0.ID, later); h.age != time.Minute {
			t.Errorf("age of the old image: %v", h.age)
		}
		if h := l.history(img2.ID, later+time.Second); h.age != time.Second {
			t.Errorf("age of the new image: %v", h.age)
		}
	})
	last := later + time.Minute
	l.Note([]cri.Image{img0, img1, img2}, usedOnly(), last)
	t.Run("M3 a container stops", func(t *testing.T) {
		if h := l.history(img1.ID, last); h.unused != time.Minute {
			t.Errorf("unused for %v", h.unused)
		}
	})
	l.Note(nil, usedOnly(), last)
	t.Run("M4 all images vanish", func(t *testing.T) {
		equal(t, "known", l.Images(), nil)
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
		l := NewLedger("boot")
		if l.PinsSeen() {
			t.Error("a pin was seen by nobody")
		}
		l.Note([]cri.Image{pinned}, usedOnly(), 0)
		l.Note([]cri.Image{img}, usedOnly(), time.Hour)
		if h := l.history(img.ID, time.Hour); !h.pinned || !l.PinsSeen() {
			t.Error("the pin is forgotten")
		}
	})
	t.Run("a pin and a stop over a list that lacked the image", func(t *testing.T) {
		t.Parallel()
		l := NewLedger("boot")
		l.Note([]cri.Image{pinned}, usedOnly(), 0)
		l.NoteStopped([]string{img.ID}, time.Hour)
		l.Note(nil, usedOnly(), 2*time.Hour)
		l.Note([]cri.Image{img}, usedOnly(), 3*time.Hour)
		h := l.history(img.ID, 3*time.Hour)
		if !h.pinned || !h.stopped || h.stopFor != 2*time.Hour {
			t.Errorf("forgotten: %+v", h)
		}
		if h.age != 0 || h.used {
			t.Errorf("an image that comes back is new: %+v", h)
		}
	})
	t.Run("but not for ever", func(t *testing.T) {
		t.Parallel()
		l := NewLedger("boot")
		l.Note([]cri.Image{pinned}, usedOnly(), 0)
		l.Note(nil, usedOnly(), time.Hour)
		l.Note(nil, usedOnly(), time.Hour+day)
		if h := l.history(img.ID, time.Hour+day); !h.pinned {
			t.Error("forgotten too early")
		}
		l.Note(nil, usedOnly(), time.Hour+day+1)
		if h := l.history(img.ID, 2*day); h.pinned || l.PinsSeen() {
			t.Error("kept for ever")
		}
	})
	t.Run("a stop of an image never listed", func(t *testing.T) {
		t.Parallel()
		l := NewLedger("boot")
		l.NoteStopped([]string{"sha256:abc"}, time.Hour)
		if h := l.history("abc", 2*time.Hour); !h.stopped || h.stopFor != time.Hour || !h.used {
			t.Errorf("not noted: %+v", h)
		}
	})
	t.Run("an unknown image is new", func(t *testing.T) {
		t.Parallel()
		if h := NewLedger("boot").history("x", time.Hour); h.age != 0 || h.used || h.pinned || h.stopped {
			t.Errorf("known: %+v", h)
		}
	})
}

// Ages count from the later of the last use and the first sight.
func TestLedgerInactive(t *testing.T) {
	t.Parallel()
	img := image(0, 1)
	l := NewLedger("boot")
	l.Note([]cri.Image{img}, usedOnly(), time.Hour)
	if h := l.history(img.ID, 3*time.Hour); h.inactive != 2*time.Hour {
		t.Errorf("never used, seen 2h ago: inactive for %v", h.inactive)
	}
	l.Note([]cri.Image{img}, usedOnly(img), 4*time.Hour)
	if h := l.history(img.ID, 5*time.Hour); h.inactive != time.Hour {
		t.Errorf("used 1h ago: inactive for %v", h.inactive)
	}
}

// The ledger's time goes on with boot time, over any number of boots, and never
// back; no more of it passes than the node was up.
func TestLedgerTime(t *testing.T) {
	t.Parallel()
	img := image(0, 1)
	tests := []struct {
		name        string
		wrote, read string // boots
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
			l.Note([]cri.Image{img}, usedOnly(), tt.at)
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

// However the boots and the readings fall, no image is ever older than the time
// that really passed with the node up.
func TestLedgerNeverAgesAnImage(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	img := image(0, 1)
	for round := range 100 {
		path := t.TempDir() + "/ledger.json"
		var up, boot time.Duration // the node was up for, in all and in this boot
		boots := 0
		name := func() string {
			if round%4 == 0 {
				return "" // not known here
			}
			return string(rune('a' + boots))
		}
		l, err := OpenLedger(path, name(), boot)
		if err != nil {
			t.Fatal(err)
		}
		l.Note([]cri.Image{img}, usedOnly(), boot)
		for range 20 {
			pass := time.Duration(rng.IntN(1000)) * time.Minute
			up, boot = up+pass, boot+pass
			switch rng.IntN(4) {
			case 0: // the service restarts
				l, err = OpenLedger(path, name(), boot)
			case 1: // power cut, and some time until the service is up
				boots++
				boot = time.Duration(rng.IntN(100)) * time.Second
				up += boot
				l, err = OpenLedger(path, name(), boot)
			case 2:
				err = l.Save(boot)
			default:
				l.Note([]cri.Image{img}, usedOnly(), boot)
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
