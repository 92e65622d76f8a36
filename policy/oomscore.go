package policy

import "math/bits"

// The kubelet's oom_score_adj by class, and the bounds for Burstable pods.
const (
	adjGuaranteed   = -997
	adjBestEffort   = 1000
	adjBurstableMin = 3
	adjBurstableMax = 999
	adjOldMin       = 2 // what early kubelets used for adjBurstableMin
)

// OOMScoreAdj is what the kubelet sets for a container, from the pod's class, the
// container's memory request and the node's MemTotal in bytes, and whether its
// priority is system-node-critical.
func OOMScoreAdj(qos QoS, request, capacity int64, nodeCritical bool) int64 {
	switch {
	case nodeCritical || qos == Guaranteed:
		return adjGuaranteed
	case qos == BestEffort:
		return adjBestEffort
	case capacity <= 0 || request >= capacity:
		return adjBurstableMin
	}
	thousandths := mulDiv(1000, max(request, 0), capacity)
	return min(max(1000-thousandths, adjBurstableMin), adjBurstableMax)
}

// RequestFromOOMScoreAdj turns a container's oom_score_adj back into its memory
// request in bytes, for a MemTotal: the least request that gives this value, so
// that it is never overstated. It is off by up to a thousandth of the capacity;
// 999 stands for anything below two, of which the least is 0. It reports false
// for values that say nothing of a request: −997 is Guaranteed or node-critical,
// and below that are the pods' own infrastructure and the node's daemons.
func RequestFromOOMScoreAdj(adj, capacity int64) (int64, bool) {
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

// The kernel's bounds of cpu.shares; a container without a CPU request has
// MinShares.
const (
	MinShares = 2
	maxShares = 262144
)

// CPUShares is the cpu.shares that the kubelet sets for a CPU request in
// thousandths of a core.
func CPUShares(milli int64) int64 {
	if milli >= maxShares {
		return maxShares
	}
	return min(max(milli*1024/1000, MinShares), maxShares)
}

// CPUMilli turns cpu.shares back into the CPU request that gives them, in
// thousandths of a core. MinShares is no request.
func CPUMilli(shares int64) int64 {
	if shares <= MinShares {
		return 0
	}
	return (min(shares, maxShares)*1000 + 1023) / 1024
}

// CPUWeight is the cpu.weight of cgroup v2 for cpu.shares, by the linear rule of
// the kubelet. (Newer runtimes write a weight of their own, by a curve.)
func CPUWeight(shares int64) int64 {
	return 1 + (min(max(shares, MinShares), maxShares)-MinShares)*9999/(maxShares-MinShares)
}
