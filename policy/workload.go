package policy

import "strings"

// Labels that a controller puts on the pods it makes.
const (
	labelTemplateHash = "pod-template-hash"        // ReplicaSet of a Deployment
	labelRevisionHash = "controller-revision-hash" // DaemonSet, StatefulSet
	labelStatefulPod  = "statefulset.kubernetes.io/pod-name"
	labelJob          = "batch.kubernetes.io/job-name" // Job
	labelOldJob       = "job-name"
)

// suffixLen is the length of the random suffix of a generated pod name.
const suffixLen = 5

// Workload names what makes a pod again after it was stopped, as
// "namespace/name": the pod's name without what its controller made up. A suffix
// is cut off only where labels prove that it was made up; where they do not, the
// pod is its own workload, so that no two workloads are ever taken for one.
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
	job := labels[labelJob]
	if job == "" {
		job = labels[labelOldJob]
	}
	if job != "" {
		// An indexed job's pods are named <job>-<index>-xxxxx.
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

// cutSuffix cuts "-xxxxx" off, five lower-case letters or digits.
func cutSuffix(name string) (base string, ok bool) {
	i := len(name) - suffixLen - 1
	if i < 1 || name[i] != '-' {
		return name, false
	}
	for _, c := range []byte(name[i+1:]) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return name, false
		}
	}
	return name[:i], true
}
