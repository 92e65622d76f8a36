package reclaim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/criguard/criguard/cri"
)

// pullable is a policy under which only ages matter.
var pullable = ImagePolicy{Prune: PruneAuto}

func usedBy(images ...cri.Image) imageUse {
	use := imageUse{SandboxImages: []string{"registry.local/sandbox:1"}}
	for _, img := range images {
		use.Containers = append(use.Containers, cri.Container{ID: "c-" + img.ID, ImageID: img.ID})
	}
	return use
}

func removable(vs []Verdict) []string {
	out := []string{}
	for _, v := range vs {
		if v.Removable {
			out = append(out, v.Name)
		}
	}
	return out
}

// The kubelet's own tests of which images it frees, in which order (M5 to M13). The kubelet relies on
// the sizes that a runtime reports; criguard measures.
func TestJudgeImagesLikeKubelet(t *testing.T) {
	t.Parallel()
	a, b, c := image(0, 1024), image(1, 2048), image(2, 2048)
	pin := func(i cri.Image) cri.Image { i.Pinned = true; return i }
	now := 100 * time.Hour
	tests := []struct {
		name   string
		images []cri.Image
		used   []cri.Image
		policy ImagePolicy
		prep   func(*Ledger)
		want   []cri.Image // the removable ones, in order
	}{
		{"M5 the unused one", []cri.Image{a, b}, []cri.Image{b}, pullable, nil, []cri.Image{a}},
		{"M6 all unused ones", []cri.Image{a, b, c}, []cri.Image{c}, pullable, nil, []cri.Image{a, b}},
		{"M7 younger than min_age", []cri.Image{a, b, c}, []cri.Image{c}, ImagePolicy{Prune: PruneAuto, MinAge: 3 * time.Second},
			func(l *Ledger) { l.note([]cri.Image{a, b, c}, usedOnly(), now-3*time.Second+1) }, nil},
		{"M7 min_age later", []cri.Image{a, b, c}, []cri.Image{c}, ImagePolicy{Prune: PruneAuto, MinAge: 3 * time.Second},
			func(l *Ledger) { l.note([]cri.Image{a, b, c}, usedOnly(), now-3*time.Second) }, []cri.Image{a, b}},
		{"M8 the least recently used one first", []cri.Image{a, b}, nil, pullable, func(l *Ledger) {
			l.note([]cri.Image{a, b}, usedOnly(a), time.Hour)
			l.note([]cri.Image{a, b}, usedOnly(b), 2*time.Hour)
		}, []cri.Image{a, b}},
		{"M9 never used before used", []cri.Image{a, b}, nil, pullable, func(l *Ledger) {
			l.note([]cri.Image{a}, usedOnly(a), time.Hour)
			l.note([]cri.Image{a, b}, usedOnly(), 2*time.Hour)
		}, []cri.Image{b, a}},
		{"M10 one is pinned", []cri.Image{pin(a), b}, nil, pullable, nil, []cri.Image{b}},
		{"M11 none is pinned", []cri.Image{a, b}, nil, pullable, nil, []cri.Image{a, b}},
		{"M12 both are pinned", []cri.Image{pin(a), pin(b)}, nil, pullable, nil, nil},
		{"M13 the sandbox image is pinned", []cri.Image{pin(a), b}, []cri.Image{b}, pullable, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLedger("boot")
			if tt.prep != nil {
				tt.prep(l)
			}
			vs := judgeImages(tt.images, usedBy(tt.used...), tt.policy, l, now)
			var want []string
			for _, img := range tt.want {
				want = append(want, displayName(img))
			}
			equal(t, "may go", removable(vs), want)
			if len(vs) != len(tt.images) {
				t.Errorf("%d verdicts for %d images", len(vs), len(tt.images))
			}
		})
	}
}

// Each reason alone keeps an image, and appears in the verdict.
func TestJudgeImagesReasons(t *testing.T) {
	t.Parallel()
	now := 100 * time.Hour
	old := func(l *Ledger, images ...cri.Image) { l.note(images, usedOnly(images...), time.Hour) }
	policy := ImagePolicy{Prune: PruneAuto, MinAge: 2 * time.Minute, UnusedGrace: 24 * time.Hour}
	tests := []struct {
		name  string
		image func(*cri.Image)
		use   func(*imageUse)
		pol   func(*ImagePolicy)
		prep  func(*Ledger, cri.Image)
		why   string // "" = removable
	}{
		{name: "nothing speaks for it"},
		{name: "a dead container", use: func(u *imageUse) {
			u.Containers = []cri.Container{{ID: "0123", State: cri.Exited, Image: "registry.example/app0:1"}}
		}, why: "in use: container 0123"},
		{name: "a container by digest alone", use: func(u *imageUse) {
			u.Containers = []cri.Container{{ID: "0123", ImageRef: image(0, 1).Digests[0]}}
		}, why: "in use: container 0123"},
		{name: "an image volume", use: func(u *imageUse) {
			u.Details = []cri.ContainerDetail{{Container: cri.Container{ID: "0123"}, Mounts: []cri.Mount{{Image: "registry.example/app0:1"}}}}
		}, why: "in use: image volume of container 0123"},
		{name: "a container of a known pod", use: func(u *imageUse) {
			u.Containers = []cri.Container{{ID: "0123", SandboxID: "s", Image: "registry.example/app0:1"}}
			u.Pods = map[string]string{"s": "default/shop"}
		}, why: "in use: container 0123 of default/shop"},
		{name: "the sandbox image", use: func(u *imageUse) { u.SandboxImages = []string{"registry.example/app0:1"} }, why: "in use: sandbox image"},
		{name: "a sandbox image by its name", image: func(i *cri.Image) { i.Tags = []string{"k8s.gcr.io/pause-arm64:3.1"} }, why: "a sandbox image, by its name"},
		{name: "a mirrored one", image: func(i *cri.Image) { i.Tags = []string{"rancher/mirrored-pause:3.6"} }, why: "a sandbox image, by its name"},
		{name: "only alike", image: func(i *cri.Image) {
			i.Tags, i.Digests = []string{"a.example/pauser:1"}, []string{"a.example/pauser@sha256:01"}
		}},
		{name: "pinned", image: func(i *cri.Image) { i.Pinned = true }, why: "pinned"},
		{name: "pinned once", prep: func(l *Ledger, i cri.Image) {
			i.Pinned = true
			old(l, i)
		}, why: "was pinned before"},
		{name: "a keep pattern", pol: func(p *ImagePolicy) { p.Keep = []string{"x", "registry.example/*"} }, why: `kept by "registry.example/*"`},
		{name: "no repository digest", image: func(i *cri.Image) { i.Digests = nil }, why: "cannot be pulled again: it has no repository digest"},
		{name: "a local name", image: func(i *cri.Image) { i.Tags = append(i.Tags, "localhost/app:1") }, why: "cannot be pulled again: localhost/app:1 is a local name"},
		{name: "a registry on this node", image: func(i *cri.Image) { i.Digests = append(i.Digests, "127.0.0.1:5000/app@sha256:02") },
			why: "cannot be pulled again: 127.0.0.1:5000/app@sha256:02 is a local name"},
		{name: "a second name, given here", image: func(i *cri.Image) { i.Tags = append(i.Tags, "other.example/app:1") },
			why: "cannot be pulled again: other.example/app:1 has no repository digest"},
		{name: "a second tag of the repository", image: func(i *cri.Image) { i.Tags = append(i.Tags, "registry.example/app0:2") }},
		{name: "no tag", image: func(i *cri.Image) { i.Tags = nil }},
		{name: "an air-gap file, by tag", use: func(u *imageUse) { u.AirGap = []string{"x", "registry.example/app0:1"} }, why: "cannot be pulled again: it came from an air-gap file"},
		{name: "an air-gap file, by digest", use: func(u *imageUse) { u.AirGap = []string{"any@" + strings.SplitN(image(0, 1).Digests[0], "@", 2)[1]} },
			why: "cannot be pulled again: it came from an air-gap file"},
		{name: "always: whether or not it can be pulled", pol: func(p *ImagePolicy) { p.Prune = PruneAlways }, image: func(i *cri.Image) { i.Digests = nil }},
		{name: "always: but pinned", pol: func(p *ImagePolicy) { p.Prune = PruneAlways }, image: func(i *cri.Image) { i.Pinned = true }, why: "pinned"},
		{name: "never", pol: func(p *ImagePolicy) { p.Prune = PruneNever }, why: "pruning is switched off"},
		{name: "a mode nobody knows", pol: func(p *ImagePolicy) { p.Prune = "" }, why: "pruning is switched off"},
		{name: "younger than min_age", prep: func(l *Ledger, i cri.Image) { l.note([]cri.Image{i}, usedOnly(i), now-2*time.Minute+1) }, why: "younger than min_age"},
		{name: "unknown to the ledger", prep: func(*Ledger, cri.Image) {}, why: WhyAgeUnknown},
		{name: "never used and new", prep: func(l *Ledger, i cri.Image) { l.note([]cri.Image{i}, usedOnly(), now-24*time.Hour+1) }, why: "never used and younger than unused_grace"},
		{name: "never used for long", prep: func(l *Ledger, i cri.Image) { l.note([]cri.Image{i}, usedOnly(), now-24*time.Hour) }},
		{name: "used by a sandbox we stopped", prep: func(l *Ledger, i cri.Image) {
			old(l, i)
			l.NoteStopped([]string{i.Tags[0]}, now-24*time.Hour+1)
			l.note([]cri.Image{i}, usedOnly(), now-time.Hour)
		}, why: "used by a pod that was stopped under pressure in the last 24h"},
		{name: "used by a sandbox we stopped a day ago", prep: func(l *Ledger, i cri.Image) {
			old(l, i)
			l.NoteStopped([]string{i.Tags[0]}, now-24*time.Hour)
			l.note([]cri.Image{i}, usedOnly(), now-time.Hour)
		}},
		{name: "young, and the runtime has just started", use: func(u *imageUse) { u.Hold = "held" },
			prep: func(l *Ledger, i cri.Image) { l.note([]cri.Image{i}, usedOnly(i), now-2*time.Minute+1) }, why: "younger than min_age; held"},
		{name: "never used, and may be an image volume", use: func(u *imageUse) { u.Doubts = []doubt{{name: "c", since: now}} },
			prep: func(l *Ledger, i cri.Image) { l.note([]cri.Image{i}, usedOnly(), now-24*time.Hour+1) },
			why:  "never used and younger than unused_grace; may be an image volume of container c, whose status the runtime does not give"},
		{name: "unknown, and the runtime has just started", use: func(u *imageUse) { u.Hold = "held" }, prep: func(*Ledger, cri.Image) {}, why: WhyAgeUnknown + "; held"},
		{name: "the runtime has just started", use: func(u *imageUse) { u.Hold = "held" }, why: "held"},
		{name: "the runtime is back for a minute: what was used two hours before", use: func(u *imageUse) { u.Hold, u.Away = "held", time.Minute },
			prep: func(l *Ledger, i cri.Image) { l.note([]cri.Image{i}, usedOnly(i), now-heldBefore-time.Minute) }, why: "held"},
		{name: "what was used earlier", use: func(u *imageUse) { u.Hold, u.Away = "held", time.Minute },
			prep: func(l *Ledger, i cri.Image) { l.note([]cri.Image{i}, usedOnly(i), now-heldBefore-time.Minute-1) }},
		{name: "what came two hours before it", use: func(u *imageUse) { u.Hold, u.Away = "held", time.Minute },
			pol:  func(p *ImagePolicy) { p.UnusedGrace = 0 },
			prep: func(l *Ledger, i cri.Image) { l.note([]cri.Image{i}, usedOnly(), now-heldBefore-time.Minute) }, why: "held"},
		{name: "what came earlier", use: func(u *imageUse) { u.Hold, u.Away = "held", time.Minute },
			pol:  func(p *ImagePolicy) { p.UnusedGrace = 0 },
			prep: func(l *Ledger, i cri.Image) { l.note([]cri.Image{i}, usedOnly(), now-heldBefore-time.Minute-1) }},
		{name: "the sandbox image is not known", use: func(u *imageUse) { u.SandboxImages = nil }, why: "which image the sandboxes use is not known"},
		{name: "it would not go", use: func(u *imageUse) { u.Stuck = map[string]bool{image(0, 1).ID: true} }, why: "its last removal failed"},
		{name: "remains of a removal", image: func(i *cri.Image) { i.Tags, i.Digests = nil, nil }, prep: func(l *Ledger, i cri.Image) {
			old(l, i)
			l.noteRemoving(i.ID)
		}},
		{name: "nameless, but nobody removed it", image: func(i *cri.Image) { i.Tags, i.Digests = nil, nil }, why: "cannot be pulled again: it has no repository digest"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			img, use, p, l := image(0, 1), usedBy(), policy, newLedger("boot")
			img.Tags, img.Digests = slices.Clone(img.Tags), slices.Clone(img.Digests)
			if tt.image != nil {
				tt.image(&img)
			}
			if tt.use != nil {
				tt.use(&use)
			}
			if tt.pol != nil {
				tt.pol(&p)
			}
			if tt.prep != nil {
				tt.prep(l, img)
			} else {
				old(l, img)
			}
			if tt.name == "pinned once" {
				img.Pinned = false
			}
			v := judgeImages([]cri.Image{img}, use, p, l, now)[0]
			switch {
			case tt.why == "" && (!v.Removable || v.Position != 1):
				t.Errorf("stays: %s", v.Why)
			case tt.why != "" && (v.Removable || v.Why != tt.why || v.Position != 0):
				t.Errorf("removable %v: %s, want %s", v.Removable, v.Why, tt.why)
			}
		})
	}
}

// max_age counts from the last use or the first sighting, whichever is later. An image that was pulled
// a minute ago and is not used yet has not expired.
func TestJudgeImagesMaxAge(t *testing.T) {
	t.Parallel()
	a, b, c := image(0, 1), image(1, 1), image(2, 1)
	l := newLedger("boot")
	l.note([]cri.Image{a}, usedOnly(a), 10*time.Hour)
	l.note([]cri.Image{a, b}, usedOnly(), 15*time.Hour)
	l.note([]cri.Image{a, b, c}, usedOnly(), 19*time.Hour)
	p := ImagePolicy{Prune: PruneAuto, MaxAge: 5 * time.Hour}
	expired := func(now time.Duration) (out []string) {
		for _, v := range judgeImages([]cri.Image{a, b, c}, usedBy(), p, l, now) {
			if v.Expired {
				out = append(out, v.Name)
			}
		}
		return out
	}
	equal(t, "at 20h: exactly max_age is not longer", expired(20*time.Hour), []string{displayName(a)})
	equal(t, "at 20h and a bit", expired(20*time.Hour+1), []string{displayName(b), displayName(a)})
	p.MaxAge = 0
	equal(t, "switched off", expired(1000*time.Hour), nil)
}

// The order is total: the same images in any order get the same verdicts.
func TestJudgeImagesOrder(t *testing.T) {
	t.Parallel()
	var images []cri.Image
	l := newLedger("boot")
	for n := range 30 {
		images = append(images, image(n, int64(n)))
	}
	for n := range 30 {
		l.note(images, usedOnly(images[n%7], images[n%5]), time.Duration(n/3)*time.Hour)
	}
	use := usedBy(images[3], images[4])
	first := judgeImages(images, use, pullable, l, 50*time.Hour)
	slices.Reverse(images)
	second := judgeImages(images, use, pullable, l, 50*time.Hour)
	for i := range first {
		if first[i].ID != second[i].ID || first[i].Position != second[i].Position {
			t.Fatalf("place %d: %s, then %s", i, first[i].Name, second[i].Name)
		}
	}
}
