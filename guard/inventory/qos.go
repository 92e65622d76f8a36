package inventory

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/policy"
)

// The oom_score_adj that the kubelet sets for a QoS class, and its bounds for Burstable pods.
const (
	adjGuaranteed   = -997
	adjBestEffort   = 1000
	adjBurstableMax = 999
	adjOldMin       = 2 // in early kubelets; 3 since
)

// minShares is the kernel's lower bound of cpu.shares. A container without a CPU request has it.
const minShares = 2

// classify derives the QoS class if the cgroup parent did not show it, and returns the priority that
// oom_score_adj implies.
func classify(q policy.QoS, ctrs []cri.ContainerDetail) (qos policy.QoS, priority *int64, source string) {
	critical, limits, bestEffort := false, 0, len(ctrs) > 0
	for i := range ctrs {
		r := &ctrs[i].Resources
		critical = critical || r.OOMScoreAdj.Known && r.OOMScoreAdj.Value == adjGuaranteed
		if r.MemoryLimit.Known {
			limits++
		}
		bestEffort = bestEffort && !r.MemoryLimit.Known && !r.CPUQuota.Known &&
			(!r.CPUShares.Known || r.CPUShares.Value <= minShares) &&
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

// qosFromCgroup derives the class from the path of a pod's or container's cgroup, for both of the
// kubelet's drivers: ".../kubepods/burstable/pod<uid>/..." or
// ".../kubepods-burstable-pod<uid>.slice...". A pod directly below kubepods is Guaranteed. For other
// paths the class is unknown.
func qosFromCgroup(path string) policy.QoS {
	below := false
	for _, dir := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == ':' }) {
		words := strings.Split(strings.TrimSuffix(dir, ".slice"), "-")
		switch i := slices.Index(words, "kubepods"); {
		case i >= 0 && i+1 < len(words):
			return qosOfDir(words[i+1])
		case i >= 0:
			below = true
		case below:
			return qosOfDir(words[0])
		}
	}
	return policy.QoSUnknown
}

// qosOfDir returns the class that a name directly below kubepods stands for.
func qosOfDir(name string) policy.QoS {
	switch {
	case name == "burstable":
		return policy.Burstable
	case name == "besteffort":
		return policy.BestEffort
	case strings.HasPrefix(name, "pod"):
		return policy.Guaranteed
	default:
		return policy.QoSUnknown
	}
}

// requestFromOOMScoreAdj computes a container's memory request in bytes from its oom_score_adj and the
// node's MemTotal. It returns the smallest request that yields this value, so that it never overstates.
// The error is up to a thousandth of the capacity; 999 stands for any request below two thousandths, so
// it yields 0. It returns false for values that do not depend on a request: −997 is Guaranteed or
// node-critical, and lower values belong to the pods' own infrastructure and the node's daemons.
func requestFromOOMScoreAdj(adj, capacity int64) (int64, bool) {
	if adj < adjOldMin || adj > adjBestEffort || capacity <= 0 {
		return 0, false
	}
	if adj >= adjBurstableMax {
		return 0, true
	}
	hi, lo := bits.Mul64(uint64(1000-adj), uint64(capacity))
	lo, carry := bits.Add64(lo, 999, 0)
	request, _ := bits.Div64(hi+carry, lo, 1000)
	return int64(request), true
}
