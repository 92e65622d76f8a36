package guard

import (
	"fmt"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
)

// defaultPodGrace is the grace period of a pod that does not say, as in the
// Kubernetes API.
const defaultPodGrace = 30 * time.Second

// systemNodeCritical is the priority of the class of that name.
const systemNodeCritical = 2_000_001_000

// podFacts is what is known of a pod before the configuration's rules are
// applied to it.
type podFacts struct {
	Namespace, Name string
	Labels          map[string]string
	Annotations     map[string]string // the pod's own; count in trusted namespaces only
	Static          bool
	Protected       bool   // marked in a trace
	Self            bool   // criguard runs in it
	Unclassified    bool   // whether it is critical is not known yet
	Priority        *int64 // from a trace, or implied by the kernel's view of the pod
	PrioritySource  string
}

// Annotations that count in the namespaces of [annotations] trusted_namespaces.
const (
	annotationPriority = "criguard.io/priority"
	annotationProtect  = "criguard.io/protect"
	annotationRequest  = "criguard.io/memory-request"
	annotationGrace    = "criguard.io/grace-period"
	annotationStorage  = "criguard.io/ephemeral-storage-limit"
)

// judge applies the configuration's rules to a pod: priority, protection and
// storage limit.
func (c *Config) judge(p *Pod, f podFacts) {
	trusted := c.Annotations.trusts(f.Namespace)
	p.Priority, p.PrioritySource = c.priority(f, trusted)
	p.Static, p.OwnPriority = f.Static, f.Priority
	// A rule that gives a critical pod another priority does not take from it what the kubelet would
	// not: the rule may be meant for all pods of a namespace.
	highest := p.Priority
	if f.Priority != nil {
		highest = max(highest, *f.Priority)
	}
	p.Critical = policy.Critical(f.Static, false, highest)
	p.Protection = c.protection(f, highest, trusted)
	for _, l := range c.Limits {
		if l.Match(f.Namespace, f.Name, f.Labels) {
			p.StorageLimit = l.EphemeralStorage
			break
		}
	}
	if trusted {
		if n, ok := parseAmount(f.Annotations[annotationStorage]); ok {
			p.StorageLimit = n
		}
	}
}

// priority: the most specific source wins: a trusted annotation, the first rule
// that matches, then what the pod itself is known by.
func (c *Config) priority(f podFacts, trusted bool) (value int64, source string) {
	if trusted {
		if n, ok := parseInt(f.Annotations[annotationPriority]); ok {
			return n, sourceAnnotation
		}
	}
	for i, r := range c.Priorities {
		if r.Match(f.Namespace, f.Name, f.Labels) {
			return r.Value, fmt.Sprintf("priority rule %d", i+1)
		}
	}
	if f.Priority != nil {
		return *f.Priority, f.PrioritySource
	}
	return 0, ""
}

// protection returns why a pod is never stopped; "" when it may be.
func (c *Config) protection(f podFacts, priority int64, trusted bool) string {
	switch {
	case f.Self:
		return protectedSelf
	case f.Protected:
		return "protected"
	case f.Static && c.ProtectStatic:
		return "static pod"
	case f.Namespace == "kube-system" && c.ProtectKubeSystem:
		return "namespace kube-system"
	case policy.Critical(false, false, priority):
		return "critical priority"
	}
	for i, r := range c.Protects {
		if r.Match(f.Namespace, f.Name, f.Labels) {
			return fmt.Sprintf("protect rule %d", i+1)
		}
	}
	if trusted && f.Annotations[annotationProtect] == "true" {
		return protectedAnnotation
	}
	if f.Unclassified {
		return protectedUnclassified
	}
	return ""
}

// Sources and reasons that a trace tells apart from what rules decide.
const (
	sourceAnnotation      = "annotation"
	sourceOOMScore        = "oom_score_adj"
	protectedAnnotation   = "annotation"
	protectedSelf         = "criguard's own pod"
	protectedUnclassified = "class not known yet"
)

// splitName splits "namespace/name"; a bare name is in namespace default.
func splitName(s string) (namespace, name string) {
	if ns, n, ok := strings.Cut(s, "/"); ok {
		return ns, n
	}
	return "default", s
}
