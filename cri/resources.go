package cri

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// Number is a number that may be absent, which differs from zero.
type Number struct {
	Value int64
	Known bool
}

// Resources are the limits of a container or a pod. The CRI has no requests.
type Resources struct {
	MemoryLimit Number // bytes, above zero; absent = no limit reported
	CPUShares   Number // 2 and above: the milli-CPU request × 1024 / 1000
	CPUQuota    Number // µs per period, above zero; absent = no limit reported
	OOMScoreAdj Number // −1000 … 1000, as requested; the runtime may have been unable to set it
}

// or fills the fields that are unknown in r from s.
func (r Resources) or(s Resources) Resources {
	for _, f := range []struct{ to, from *Number }{
		{&r.MemoryLimit, &s.MemoryLimit},
		{&r.CPUShares, &s.CPUShares},
		{&r.CPUQuota, &s.CPUQuota},
		{&r.OOMScoreAdj, &s.OOMScoreAdj},
	} {
		if !f.to.Known {
			*f.to = *f.from
		}
	}
	return r
}

// resourcesOf translates a message, in which zero means not given.
func resourcesOf(m *runtimeapi.LinuxContainerResources) Resources {
	return Resources{
		MemoryLimit: positive(m.GetMemoryLimitInBytes()),
		CPUShares:   positive(m.GetCpuShares()),
		CPUQuota:    positive(m.GetCpuQuota()),
		OOMScoreAdj: oomScoreAdj(m.GetOomScoreAdj(), m.GetOomScoreAdj() != 0),
	}
}

// positive returns a number that is known only if it is above zero: −1 means "unlimited".
func positive(v int64) Number {
	if v <= 0 {
		return Number{}
	}
	return Number{Value: v, Known: true}
}

// oomScoreAdj returns a number that is known only if the kernel would accept it.
func oomScoreAdj(v int64, known bool) Number {
	if !known || v < -1000 || v > 1000 {
		return Number{}
	}
	return Number{Value: v, Known: true}
}
