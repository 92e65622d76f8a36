package inventory

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
)

// DefaultPodGrace is the grace period of a pod in a trace that does not set one, as in the Kubernetes API.
const DefaultPodGrace = 30 * time.Second

// anyGrace is the grace period of a pod that no kubelet has made: as long as the operator allows.
const anyGrace = 24 * time.Hour

// systemNodeCritical is the priority of the system-node-critical class.
const systemNodeCritical = 2_000_001_000

// Facts holds the facts about a pod to which the configuration's rules are applied.
type Facts struct {
	Namespace, Name string
	Labels          map[string]string
	Annotations     map[string]string // the pod's own; used only in trusted namespaces
	Static          bool
	Protected       bool   // marked in a trace
	Self            bool   // criguard runs in this pod
	Unclassified    bool   // not yet known whether it is critical
	Priority        *int64 // from a trace, or implied by oom_score_adj
	PrioritySource  string
}

// ApplyRules applies the configuration's rules to a pod: priority, protection and storage limit.
func ApplyRules(c *config.Config, p *Pod, f Facts) {
	trusted := c.Annotations.Trusts(f.Namespace)
	p.Priority, p.PrioritySource = priority(c, f, trusted)
	p.Static, p.OwnPriority = f.Static, f.Priority
	// A rule that lowers a critical pod's priority does not make it a candidate, because the kubelet would
	// not evict it either: the rule may be meant for all pods of a namespace.
	highest := p.Priority
	if f.Priority != nil {
		highest = max(highest, *f.Priority)
	}
	p.Critical = policy.Critical(f.Static, highest)
	p.Protection = protection(c, f, highest, trusted)
	for _, l := range c.Limits {
		if l.Match(f.Namespace, f.Name, f.Labels) {
			p.StorageLimit = l.EphemeralStorage
			break
		}
	}
	if trusted {
		if n, ok := parseAmount(f.Annotations[config.AnnotationStorage]); ok {
			p.StorageLimit = n
		}
	}
}

// priority returns the priority of the most specific source: a trusted annotation, the first matching rule,
// or else the pod's own priority.
func priority(c *config.Config, f Facts, trusted bool) (value int64, source string) {
	if trusted {
		if n, ok := parseInt(f.Annotations[config.AnnotationPriority]); ok {
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

// protection returns why a pod is never stopped; "" if it may be stopped.
func protection(c *config.Config, f Facts, priority int64, trusted bool) string {
	switch {
	case f.Self:
		return ProtectedSelf
	case f.Protected:
		return "protected"
	case f.Static && c.ProtectStatic:
		return "static pod"
	case f.Namespace == "kube-system" && c.ProtectKubeSystem:
		return "namespace kube-system"
	case policy.Critical(false, priority):
		return "critical priority"
	}
	for i, r := range c.Protects {
		if r.Match(f.Namespace, f.Name, f.Labels) {
			return fmt.Sprintf("protect rule %d", i+1)
		}
	}
	if trusted && f.Annotations[config.AnnotationProtect] == "true" {
		return ProtectedAnnotation
	}
	if f.Unclassified {
		return ProtectedUnclassified
	}
	return ""
}

// Sources and reasons.
const (
	// sourceAnnotation is the PrioritySource of a trusted annotation.
	sourceAnnotation = "annotation"
	sourceOOMScore   = "oom_score_adj"
	// SourceUnknown is the RequestSource of a pod whose request is unknown.
	SourceUnknown = "unknown"
	// ProtectedAnnotation is the protection by a trusted annotation.
	ProtectedAnnotation = "annotation"
	// ProtectedSelf is the protection of criguard's own pod.
	ProtectedSelf         = "criguard's own pod"
	ProtectedUnclassified = "class not known yet"
)
