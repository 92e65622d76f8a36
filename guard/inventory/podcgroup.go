package inventory

import (
	"path"
	"slices"
	"strings"

	"github.com/criguard/criguard/cri"
)

// IsCgroupOf reports whether the cgroup's name is the one that the kubelet gives to the pod's cgroup, with
// either cgroup driver. It compares the whole name: without a kubelet, a runtime puts the containers of all
// pods into one cgroup, and a short UID occurs in many names.
func IsCgroupOf(cgroup, uid string) bool {
	base := path.Base(cgroup)
	return uid != "" && (base == "pod"+uid || strings.HasSuffix(base, "-pod"+strings.ReplaceAll(uid, "-", "_")+".slice"))
}

// OwnsCgroupNamed reports whether a cgroup below a pod cgroup is named after the sandbox's ID or a
// container's ID: a container's own cgroup, a monitor's ("crio-conmon-ID.scope") or the sandbox's
// ("kata_ID").
func (p *Pod) OwnsCgroupNamed(name string) bool {
	of := func(id string) bool { return isSandboxCgroup(name, id) || cri.IsMonitorCgroup(name, id) }
	for i := range p.Containers {
		if of(p.Containers[i].ID) {
			return true
		}
	}
	return of(p.ID)
}

// isSandboxCgroup reports whether a cgroup is named after a sandbox's ID, like a container's or as Kata names it.
func isSandboxCgroup(name, id string) bool {
	return cri.IsContainerCgroup(name, id) || id != "" && strings.HasSuffix(name, "_"+id)
}

// findUnreported finds the cgroups of containers whose details the runtime does not give, by their names in the pod cgroup.
func (p *Pod) findUnreported(children func(cgroup string) ([]string, error)) {
	if p.Cgroup == "" || !slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Cgroup == "" }) {
		return
	}
	names, err := children(p.Cgroup)
	if err != nil {
		return // the runtime alone can stop them
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.Cgroup == "" {
			if at := slices.IndexFunc(names, func(name string) bool { return cri.IsContainerCgroup(name, c.ID) }); at >= 0 {
				c.Cgroup = path.Join(p.Cgroup, names[at])
			}
		}
	}
}

// Owns reports whether the pod cgroup rel belongs to this sandbox. It returns false if the cgroup of a
// container is unknown, because that container may be anywhere.
func (p *Pod) Owns(rel string) bool {
	own := IsCgroupOf(rel, p.UID) || p.parent == rel
	for i := range p.Containers {
		if p.Containers[i].Cgroup == "" {
			return false
		}
		own = own || path.Dir(p.Containers[i].Cgroup) == rel
	}
	return own
}

// dropShared clears the pod cgroup of every pod that shares it with another, so that a pod is not charged
// for another pod's usage. Their usage is then read from the containers' own cgroups.
func dropShared(pods []Pod) {
	holder := map[string]string{} // sandboxes by each cgroup that contains their containers
	shared := map[string]bool{}
	hold := func(rel, sandbox string) {
		for ; rel != "" && rel != "/" && rel != "."; rel = path.Dir(rel) {
			if other, held := holder[rel]; held && other != sandbox {
				shared[rel] = true
			}
			holder[rel] = sandbox
		}
	}
	for i := range pods {
		p := &pods[i]
		hold(p.parent, p.ID)
		for j := range p.Containers {
			if c := p.Containers[j].Cgroup; c != "" {
				hold(path.Dir(c), p.ID)
			}
		}
	}
	for i := range pods {
		if shared[pods[i].IdleCgroup] {
			pods[i].IdleCgroup = ""
		}
		if shared[pods[i].Cgroup] {
			pods[i].Cgroup = ""
			pods[i].dropUnnamed()
		}
	}
}

// dropUnnamed clears the cgroups of containers that are not named after the container ID, if the pod has no
// cgroup of its own: such a cgroup may be anywhere and other containers may share it.
func (p *Pod) dropUnnamed() {
	for i := range p.Containers {
		if c := &p.Containers[i]; p.Cgroup == "" && !cri.IsContainerCgroup(c.Cgroup, c.ID) {
			c.Cgroup = ""
		}
	}
}
