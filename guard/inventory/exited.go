package inventory

import (
	"slices"

	"github.com/criguard/criguard/cri"
)

// exited are the exited containers of a sandbox.
type exited struct {
	ids, images []string // the images' names, without duplicates
}

// exitedIn returns the exited containers by sandbox. The IDs are those of the containers that no newer attempt has replaced.
func exitedIn(containers []cri.Container, details map[string]cri.ContainerDetail) map[string]exited {
	type name struct{ sandbox, name string }
	last := map[name]uint32{}
	for i := range containers {
		c := &containers[i]
		n := name{c.SandboxID, c.Name}
		last[n] = max(last[n], c.Attempt)
	}
	all := map[string]exited{}
	for i := range containers {
		c := &containers[i]
		if c.State != cri.Exited {
			continue
		}
		e := all[c.SandboxID]
		if c.Attempt == last[name{c.SandboxID, c.Name}] {
			e.ids = append(e.ids, c.ID)
		}
		for _, name := range imageNames(c, details[c.ID].Mounts) {
			if name != "" && !slices.Contains(e.images, name) {
				e.images = append(e.images, name)
			}
		}
		all[c.SandboxID] = e
	}
	return all
}
