package scenario

import (
	"slices"
	"time"

	"github.com/criguard/criguard/test/lab"
)

// Scenario is one thing to try.
type Scenario struct {
	Name     string
	What     string // what breaks and what must come of it, in one line
	Profiles []Profile
	Limit    time.Duration // for the whole; 0 is six minutes
	Debs     bool          // it needs criguard's packages on the payload disk
	Run      func(*Node)
}

// Bound is how long the scenario may take.
func (s Scenario) Bound() time.Duration {
	if s.Limit > 0 {
		return s.Limit
	}
	return 6 * time.Minute
}

// All is every scenario. A new kind is one more file, and its table here.
func All() []Scenario {
	return slices.Concat(install(), packages(), memory(), soft(), disk(), tasks(), stalls(), runtimes(), service(), nodes(), operators(), faults())
}

// Find returns the scenario of that name.
func Find(name string) (Scenario, bool) {
	all := slices.Concat(All(), Rivals())
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return all[i], true
}

// SpareImages is the archive of images that nothing uses, each with spareMiB of its own.
const (
	SpareImages = "spare.tar"
	baseImages  = "base.tar"
	spareMiB    = 24
)

// Images is what each archive on the payload disk holds.
func Images() map[string][]lab.ImageSpec {
	images := map[string][]lab.ImageSpec{baseImages: {{Name: lab.PauseImage}, {Name: lab.WorkloadImage}}}
	for _, name := range []string{"one", "two", "three", "four", "five"} {
		images[SpareImages] = append(images[SpareImages], lab.ImageSpec{
			Name: "registry.example/" + name + ":1", ExtraBytes: spareMiB << 20, RepoDigest: true,
		})
	}
	return images
}
