package scenario

import (
	"slices"
	"time"

	"github.com/criguard/criguard/test/lab"
)

// Scenario is one test on a virtual node.
type Scenario struct {
	Name     string
	What     string // what breaks and the expected outcome, in one line
	Profiles []Profile
	Limit    time.Duration // timeout of the whole scenario; 0 is six minutes
	Debs     bool          // needs criguard's packages on the payload disk
	Image    bool          // needs criguard's image on the payload disk
	Etcd     bool          // needs etcd on the payload disk
	Detail   bool          // of a comparison: left out of the summary
	Run      func(*Node)
}

// Bound returns the scenario's timeout.
func (s Scenario) Bound() time.Duration {
	if s.Limit > 0 {
		return s.Limit
	}
	return 6 * time.Minute
}

// All returns every scenario. A new kind needs a file of its own, and its table here.
func All() []Scenario {
	return slices.Concat(install(), packages(), memory(), soft(), disk(), tasks(), stalls(), runtimes(), service(), nodes(), operators(), inFleet(), kube(), faults())
}

// Find returns the scenario with that name.
func Find(name string) (Scenario, bool) {
	all := slices.Concat(All(), Rivals())
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return all[i], true
}

// SpareImages is the archive of unused images, each with spareMiB of its own.
const (
	SpareImages = "spare.tar"
	baseImages  = "base.tar"
	spareMiB    = 24
)

// Images returns the content of each archive on the payload disk.
func Images() map[string][]lab.ImageSpec {
	images := map[string][]lab.ImageSpec{baseImages: {{Name: lab.PauseImage}, {Name: lab.WorkloadImage}}}
	for _, name := range []string{"one", "two", "three", "four", "five"} {
		images[SpareImages] = append(images[SpareImages], lab.ImageSpec{
			Name: "registry.example/" + name + ":1", ExtraBytes: spareMiB << 20, RepoDigest: true,
		})
	}
	return images
}
