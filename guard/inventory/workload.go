package inventory

import (
	"cmp"
	"strings"
)

// Labels that controllers set on their pods.
const (
	labelTemplateHash = "pod-template-hash"        // ReplicaSet of a Deployment
	labelRevisionHash = "controller-revision-hash" // DaemonSet, StatefulSet
	labelStatefulPod  = "statefulset.kubernetes.io/pod-name"
	labelJob          = "batch.kubernetes.io/job-name" // Job
	labelOldJob       = "job-name"
)

// workloadLabels are the labels that Workload uses.
var workloadLabels = []string{labelTemplateHash, labelRevisionHash, labelStatefulPod, labelJob, labelOldJob}

// suffixLen is the length of the random suffix of a generated pod name.
const suffixLen = 5

// Workload names what recreates a pod after a stop, as "namespace/name": the pod's name without the
// part that its controller generated. It cuts off a suffix only if labels prove that it was generated.
// Otherwise the pod is its own workload, so that two workloads are never mistaken for one.
func Workload(namespace, name string, labels map[string]string) string {
	return namespace + "/" + controller(name, labels)
}

func controller(name string, labels map[string]string) string {
	base, ok := cutSuffix(name)
	if !ok || labels[labelStatefulPod] != "" {
		return name
	}
	if hash := labels[labelTemplateHash]; hash != "" {
		if owner, ok := strings.CutSuffix(base, "-"+hash); ok && owner != "" {
			return owner
		}
		return name
	}
	if job := cmp.Or(labels[labelJob], labels[labelOldJob]); job != "" {
		// The pods of an indexed job are named <job>-<index>-xxxxx.
		if base == job || strings.HasPrefix(base, job+"-") {
			return base
		}
		return name
	}
	if labels[labelRevisionHash] != "" {
		return base
	}
	return name
}

// cutSuffix cuts off "-xxxxx": five lower-case letters or digits.
func cutSuffix(name string) (base string, ok bool) {
	generated := func(c rune) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	i := len(name) - suffixLen - 1
	if i < 1 || name[i] != '-' || strings.TrimLeftFunc(name[i+1:], generated) != "" {
		return name, false
	}
	return name[:i], true
}
