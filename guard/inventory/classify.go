package inventory

import (
	"cmp"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/criguard/criguard/cgroup"
	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
)

// Annotations that the kubelet sets on a pod's sandbox.
const (
	annotationConfigSource = "kubernetes.io/config.source"
	annotationConfigMirror = "kubernetes.io/config.mirror"
)

// nodeFacts holds the facts about the node that classification needs.
type nodeFacts struct {
	capacity  int64 // MemTotal, bytes
	allocated map[string]allocated
	self      *ownPod
	resolve   func(specPath string) string
	memoryMin func(cgroup string) (int64, bool)
	children  func(cgroup string) ([]string, error)
	// memoryLimit returns a cgroup's own limit in bytes; false if it is unlimited or unreadable.
	memoryLimit func(cgroup string) (int64, bool)
}

// derivePod combines what the CRI and the cgroup tree report about a pod. The CRI carries no QoS class,
// memory request or priority, so each comes from the best of several sources, and rank shows which.
func derivePod(c *config.Config, s listed, n *nodeFacts) Pod {
	ctrs := s.containers
	p := Pod{
		Candidate: policy.Candidate{
			ID: s.ID, Namespace: s.Namespace, Name: s.Name, UID: s.UID,
			Workload: Workload(s.Namespace, s.Name, s.Labels),
			Created:  s.created,
		},
		Labels: s.Labels, Annotations: s.Annotations, Grace: anyGrace,
		EndedImages: s.ended.images, Ended: s.ended.ids,
	}
	for i := range ctrs {
		p.Containers = append(p.Containers, containerOf(&ctrs[i], n))
		if g, ok := ctrs[i].GracePeriod(); ok {
			p.Grace = g
		}
		p.SandboxCgroup = cmp.Or(p.SandboxCgroup, ctrs[i].SandboxCgroup)
	}
	parent, own := "", ""
	for i := range s.classified {
		if cg := s.classified[i].CgroupsPath; cg != "" {
			own = n.resolve(cg)
			parent = path.Dir(own)
			break
		}
	}
	// Without containers, the pod cgroup stays unknown: anything that starts in it is found as unlisted.
	if p.parent = parent; IsCgroupOf(parent, s.UID) {
		if len(p.Containers) > 0 {
			p.Cgroup = parent
		} else {
			p.IdleCgroup = parent
		}
	}
	p.dropUnnamed()
	p.findUnreported(n.children)
	p.QoS = qosFromCgroup(own) // the name of the pod's slice may be part of the container's
	f := Facts{
		Namespace: s.Namespace, Name: s.Name, Labels: s.Labels, Annotations: s.Annotations,
		Static: isStatic(s.Annotations), Self: n.self.contains(&p), Unclassified: len(s.classified) == 0,
	}
	p.QoS, f.Priority, f.PrioritySource = classify(p.QoS, s.classified)
	request(c, &p, s, n)
	ApplyRules(c, &p, f)
	if c.Annotations.Trusts(s.Namespace) {
		if g, err := time.ParseDuration(s.Annotations[config.AnnotationGrace]); err == nil && g >= 0 {
			p.Grace = g
		}
	}
	return p
}

// classifies reports whether the container's details are sufficient to classify its pod. Every runtime
// reports at least the start time of a running container.
func classifies(d cri.ContainerDetail) bool {
	return d.CgroupsPath != "" || d.Resources.OOMScoreAdj.Known || !d.StartedAt.IsZero()
}

func containerOf(d *cri.ContainerDetail, n *nodeFacts) Container {
	c := Container{ID: d.ID, Name: d.Name, LogPath: d.LogPath, Running: d.State == cri.Running}
	if d.CgroupsPath != "" {
		c.Cgroup = n.resolve(d.CgroupsPath)
	}
	c.Images = imageNames(&d.Container, d.Mounts)
	return c
}

// imageNames returns every name that the runtime reports for the container's image and for those that it mounts.
func imageNames(c *cri.Container, mounts []cri.Mount) []string {
	names := []string{c.ImageID, c.ImageRef, c.Image, c.UserImage}
	for _, m := range mounts {
		names = append(names, m.Image)
	}
	return names
}

// holds reports whether the cgroup is that of one of the pod's containers, or below it.
func (p *Pod) holds(cgroup string) bool {
	if cgroup == "" || cgroup == "/" {
		return false
	}
	for i := range p.Containers {
		if c := p.Containers[i].Cgroup; c != "" && (cgroup == c || strings.HasPrefix(cgroup, c+"/")) {
			return true
		}
	}
	return false
}

// IsKubeletPod reports whether a kubelet created the pod, judging by its sandbox annotations.
func IsKubeletPod(annotations map[string]string) bool {
	return annotations[annotationConfigSource] != ""
}

// isStatic reports whether the kubelet took the pod from a file or URL. The kubelet annotates each pod with
// its configuration source: "api" for pods from the API server. Other pods have no such annotation.
func isStatic(annotations map[string]string) bool {
	src := annotations[annotationConfigSource]
	return src != "" && src != "api" || annotations[annotationConfigMirror] != ""
}

// request sets the pod's memory request from the best available source.
func request(c *config.Config, p *Pod, s listed, n *nodeFacts) {
	ctrs := s.classified
	a, known := n.allocated[p.UID]
	state := a.requests(s.seen)
	p.StorageRequest = state.storage
	if c.Annotations.Trusts(p.Namespace) {
		if v, ok := parseAmount(p.Annotations[config.AnnotationRequest]); ok {
			p.MemoryRequest, p.RequestSource = v, "annotation"
			return
		}
	}
	switch {
	case state.memory > 0: // zero may mean that the state file omits the pod-level request
		p.MemoryRequest, p.RequestSource = state.memory, "kubelet state"
		return
	case p.QoS == policy.BestEffort:
		p.MemoryRequest, p.RequestSource = 0, "BestEffort"
		return
	}
	if v, ok := n.memoryMin(p.Cgroup); ok && p.Cgroup != "" && v > 0 {
		p.MemoryRequest, p.RequestSource = v, "memory.min"
		return
	}
	if p.QoS == policy.Guaranteed {
		n.guaranteedRequest(p, ctrs)
		return
	}
	for i := range ctrs {
		if adj := ctrs[i].Resources.OOMScoreAdj; adj.Known {
			if v, ok := requestFromOOMScoreAdj(adj.Value, n.capacity); ok {
				// A sidecar gets the lowest oom_score_adj of the regular containers (the kubelet's
				// GetContainerOOMScoreAdjust). A request never exceeds its limit.
				if l := n.limit(&ctrs[i]); l.Known {
					v = min(v, l.Value)
				}
				p.MemoryRequest += v
				p.RequestSource = "oom_score_adj"
			}
		}
	}
	if p.RequestSource == "" {
		p.RequestSource = SourceUnknown
		if known {
			p.RequestSource = "kubelet state"
		}
	}
}

// guaranteedRequest uses a Guaranteed pod's memory limit as its request: the sum of the container limits, or
// else the limit of the pod cgroup.
func (n *nodeFacts) guaranteedRequest(p *Pod, ctrs []cri.ContainerDetail) {
	p.RequestSource = SourceUnknown
	if v, ok := n.sumLimits(ctrs); ok {
		p.MemoryRequest, p.RequestSource = v, "memory limit"
	} else if v, ok := n.memoryLimit(p.Cgroup); ok && p.Cgroup != "" && v > 0 {
		p.MemoryRequest, p.RequestSource = v, "pod memory limit"
	}
}

// sumLimits returns the sum of the memory limits; false if a container has no limit.
func (n *nodeFacts) sumLimits(ctrs []cri.ContainerDetail) (int64, bool) {
	var sum int64
	for i := range ctrs {
		l := n.limit(&ctrs[i])
		if !l.Known {
			return 0, false
		}
		sum += l.Value
	}
	return sum, len(ctrs) > 0
}

// limit returns a container's memory limit. The runtime's details are cached, so after an in-place resize
// only the cgroup has the new limit. The kernel rounds down to whole pages: if the two differ by less than a
// page, the runtime's number is used because it is exact.
func (n *nodeFacts) limit(d *cri.ContainerDetail) cri.Number {
	reported := d.Resources.MemoryLimit
	if d.CgroupsPath == "" {
		return reported
	}
	leaf := n.resolve(d.CgroupsPath)
	if !cri.IsContainerCgroup(leaf, d.ID) {
		return reported // other containers may share it
	}
	v, ok := n.memoryLimit(leaf)
	rounded := reported.Known && v <= reported.Value && reported.Value-v < int64(os.Getpagesize())
	if !ok || v <= 0 || rounded {
		return reported
	}
	return cri.Number{Value: v, Known: true}
}

func parseInt(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// locator returns a function that completes the details of a container if the runtime reports its process, but not its
// cgroup, as cri-dockerd does, or only a relative path of it. It adds the cgroup and oom_score_adj. So it does if the path
// does not exist: a runtime that does not use systemd takes "slice:prefix:name" for the name of a cgroup. If neither the
// process's cgroup nor one above it is named after the container ID, it skips the process: the PID is from another
// namespace. systemd in a container moves itself to a cgroup below the container's.
//
// Kata reports the virtual machine's process, and gVisor that of its kernel: their cgroup is named after the sandbox.
func locator(l cgroup.Layout) func(cri.ContainerDetail) cri.ContainerDetail {
	exists := func(rel string) bool { _, err := l.Inode(rel); return err == nil }
	return func(d cri.ContainerDetail) cri.ContainerDetail {
		reported := l.Resolve(d.CgroupsPath)
		if reported == "" {
			d.CgroupsPath = ""
		}
		if d.PID == 0 {
			return d
		}
		at, err := l.OfPID(d.PID)
		if err != nil {
			return d
		}
		rel := nearest(at, func(name string) bool { return cri.IsContainerCgroup(name, d.ID) })
		if rel == "" {
			rel = nearest(at, func(name string) bool { return isSandboxCgroup(name, d.SandboxID) })
			if rel != "" && exists(rel) {
				d.SandboxCgroup = rel
			}
			return d
		}
		if reported != "" && (exists(reported) || !exists(rel)) {
			return d
		}
		d.CgroupsPath = rel
		if adj, err := l.OOMScoreAdj(d.PID); err == nil && !d.Resources.OOMScoreAdj.Known {
			d.Resources.OOMScoreAdj = cri.Number{Value: adj, Known: true}
		}
		return d
	}
}

// nearest returns the cgroup, or the first one above it, whose name is accepted; "" = none.
func nearest(rel string, accept func(name string) bool) string {
	for ; len(rel) > 1; rel = path.Dir(rel) {
		if accept(path.Base(rel)) {
			return rel
		}
	}
	return ""
}
