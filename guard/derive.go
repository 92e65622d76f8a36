package guard

import (
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
	"github.com/criguard/criguard/reclaim"
)

// Annotations of the kubelet on a pod's sandbox.
const (
	annotationConfigSource = "kubernetes.io/config.source"
	annotationConfigMirror = "kubernetes.io/config.mirror"
)

// nodeFacts are facts of the node that pods are judged by.
type nodeFacts struct {
	capacity  int64 // MemTotal, bytes
	allocated map[string]allocated
	self      *ownPlace
	resolve   func(specPath string) string
	memoryMin func(cgroup string) (int64, bool)
}

// derivePod puts together what the CRI and the cgroup tree tell of a pod. The
// CRI carries neither class nor request nor priority: each comes from the best
// of several sources, and rank says which.
func (c *Config) derivePod(s listed, n *nodeFacts) Pod {
	ctrs := s.containers
	p := Pod{
		Candidate: policy.Candidate{
			ID: s.ID, Namespace: s.Namespace, Name: s.Name, UID: s.UID,
			Workload: policy.Workload(s.Namespace, s.Name, s.Labels),
			Created:  s.created,
		},
		Labels: s.Labels, Annotations: s.Annotations, Attempt: s.Attempt, Grace: defaultPodGrace,
	}
	for i := range ctrs {
		p.Containers = append(p.Containers, container(&ctrs[i], n))
		if g, ok := ctrs[i].GracePeriod(); ok {
			p.Grace = g
		}
	}
	parent := ""
	for i := range s.classified {
		if cg := s.classified[i].CgroupsPath; cg != "" {
			parent = path.Dir(n.resolve(cg))
			break
		}
	}
	// Where nothing runs the cgroup is left open: what starts in it is found as a stranger.
	if len(p.Containers) > 0 && ownCgroup(parent, s.UID) {
		p.Cgroup = parent
	}
	for i := range p.Containers {
		// Nothing bounds where a runtime says that it is: it is not to be charged for others.
		if c := &p.Containers[i]; p.Cgroup == "" && !reclaim.BearsID(c.Cgroup, c.ID) {
			c.Cgroup = ""
		}
	}
	p.QoS = policy.QoSFromCgroupParent(parent)
	f := podFacts{
		Namespace: s.Namespace, Name: s.Name, Labels: s.Labels, Annotations: s.Annotations,
		Static: isStatic(s.Annotations), Self: n.self.in(&p), Unclassified: len(s.classified) == 0,
	}
	p.QoS, f.Priority, f.PrioritySource = classify(p.QoS, s.classified)
	c.request(&p, s.classified, n)
	c.judge(&p, f)
	if c.Annotations.trusts(s.Namespace) {
		if g, err := time.ParseDuration(s.Annotations[annotationGrace]); err == nil && g >= 0 {
			p.Grace = g
		}
	}
	return p
}

// classifies tells whether a container's details are known, by which its pod is classed. Of
// one that runs, a runtime that tells nothing else tells since when.
func classifies(d cri.ContainerDetail) bool {
	return d.CgroupsPath != "" || d.Resources.OOMScoreAdj.Known || !d.StartedAt.IsZero()
}

func container(d *cri.ContainerDetail, n *nodeFacts) PodContainer {
	c := PodContainer{ID: d.ID, Name: d.Name, LogPath: d.LogPath, Running: d.State == cri.Running}
	if d.CgroupsPath != "" {
		c.Cgroup = n.resolve(d.CgroupsPath)
	}
	c.Images = imageNames(&d.Container)
	return c
}

// imageNames is every name of its image that the runtime tells of a container.
func imageNames(c *cri.Container) []string {
	return []string{c.ImageID, c.ImageRef, c.Image, c.UserImage}
}

// ownCgroup tells whether a cgroup is the pod's alone: a runtime used without a
// kubelet puts the containers of all pods into one.
func ownCgroup(cgroup, uid string) bool {
	base := path.Base(cgroup)
	return uid != "" && (strings.Contains(base, uid) || strings.Contains(base, strings.ReplaceAll(uid, "-", "_")))
}

// holds tells whether a cgroup is the pod's or one of its containers'.
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

// isStatic: a kubelet marks where a pod's configuration comes from; pods from the
// API carry "api", pods that no kubelet made carry nothing.
func isStatic(annotations map[string]string) bool {
	src := annotations[annotationConfigSource]
	return src != "" && src != "api" || annotations[annotationConfigMirror] != ""
}

// Values of oom_score_adj that a kubelet sets by class.
const (
	adjGuaranteed = -997
	adjBestEffort = 1000
)

// classify fills the class in where the cgroup parent does not tell it, and finds
// what the kernel's view implies about the priority.
func classify(q policy.QoS, ctrs []cri.ContainerDetail) (qos policy.QoS, priority *int64, source string) {
	critical := false
	var limits, requests, adjs int
	bestEffort := len(ctrs) > 0
	for i := range ctrs {
		r := &ctrs[i].Resources
		if r.OOMScoreAdj.Known {
			adjs++
			critical = critical || r.OOMScoreAdj.Value == adjGuaranteed
		}
		if r.MemoryLimit.Known {
			limits++
		}
		if r.CPUShares.Known && r.CPUShares.Value > policy.MinShares {
			requests++
		}
		bestEffort = bestEffort && !r.MemoryLimit.Known && !r.CPUQuota.Known &&
			(!r.CPUShares.Known || r.CPUShares.Value <= policy.MinShares) &&
			(!r.OOMScoreAdj.Known || r.OOMScoreAdj.Value == adjBestEffort || r.OOMScoreAdj.Value == 0)
	}
	if critical && q != policy.Guaranteed && q != policy.QoSUnknown {
		n := int64(systemNodeCritical)
		return q, &n, sourceOOMScore
	}
	if q != policy.QoSUnknown {
		return q, nil, ""
	}
	switch {
	case bestEffort:
		q = policy.BestEffort
	case critical && limits == len(ctrs):
		q = policy.Guaranteed
	default:
		q = policy.Burstable
	}
	return q, nil, ""
}

// request finds the pod's memory request, the best source first.
func (c *Config) request(p *Pod, ctrs []cri.ContainerDetail, n *nodeFacts) {
	a, known := n.allocated[p.UID]
	if known {
		p.StorageRequest = a.Storage
	}
	if c.Annotations.trusts(p.Namespace) {
		if v, ok := parseAmount(p.Annotations[annotationRequest]); ok {
			p.MemoryRequest, p.RequestSource = v, "annotation"
			return
		}
	}
	switch {
	case known && a.Memory > 0: // none at all may be the pod's own request, which was left out
		p.MemoryRequest, p.RequestSource = a.Memory, "kubelet state"
		return
	case p.QoS == policy.BestEffort:
		p.MemoryRequest, p.RequestSource = 0, "BestEffort"
		return
	}
	if v, ok := n.memoryMin(p.Cgroup); ok && p.Cgroup != "" && v > 0 {
		p.MemoryRequest, p.RequestSource = v, "memory.min"
		return
	}
	if v, ok := sumLimits(ctrs); ok && p.QoS == policy.Guaranteed {
		p.MemoryRequest, p.RequestSource = v, "memory limit"
		return
	}
	for i := range ctrs {
		if adj := ctrs[i].Resources.OOMScoreAdj; adj.Known {
			if v, ok := policy.RequestFromOOMScoreAdj(adj.Value, n.capacity); ok {
				// A sidecar bears what the smallest container has (the kubelet's
				// GetContainerOOMScoreAdjust); no request is above its limit.
				if l := ctrs[i].Resources.MemoryLimit; l.Known && l.Value > 0 {
					v = min(v, l.Value)
				}
				p.MemoryRequest += v
				p.RequestSource = "oom_score_adj"
			}
		}
	}
	if known && p.RequestSource == "" {
		p.RequestSource = "kubelet state"
	}
}

// sumLimits adds the memory limits up; false when a container has none.
func sumLimits(ctrs []cri.ContainerDetail) (int64, bool) {
	var sum int64
	for i := range ctrs {
		l := ctrs[i].Resources.MemoryLimit
		if !l.Known {
			return 0, false
		}
		sum += l.Value
	}
	return sum, len(ctrs) > 0
}

func parseInt(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
