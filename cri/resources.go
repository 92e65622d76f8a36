package cri

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// Number is a number that may be absent: absent differs from zero.
type Number struct {
	Value int64
	Known bool
}

// Resources are the limits a container or a pod was given. The CRI carries no
// request.
type Resources struct {
	MemoryLimit Number // bytes, above zero; absent = no limit told
	SwapLimit   Number // bytes, memory and swap together; absent = none told
	CPUShares   Number // 2 and above: the milli-CPU request × 1024 / 1000
	CPUQuota    Number // µs per period, above zero; absent = no limit told
	CPUPeriod   Number // µs
	OOMScoreAdj Number // −1000 … 1000, as asked for; the runtime may have been unable to set it
	// Unified are raw cgroup v2 settings, such as "memory.min" and
	// "memory.swap.max"; nil = none.
	Unified map[string]string
}

// or fills in what r does not know from s.
func (r Resources) or(s Resources) Resources {
	for _, f := range []struct{ to, from *Number }{
		{&r.MemoryLimit, &s.MemoryLimit},
		{&r.SwapLimit, &s.SwapLimit},
		{&r.CPUShares, &s.CPUShares},
		{&r.CPUQuota, &s.CPUQuota},
		{&r.CPUPeriod, &s.CPUPeriod},
		{&r.OOMScoreAdj, &s.OOMScoreAdj},
	} {
		if !f.to.Known {
			*f.to = *f.from
		}
	}
	if len(r.Unified) == 0 {
		r.Unified = s.Unified
	}
	return r
}

// resourcesOf translates a message, in which zero means not given.
func resourcesOf(m *runtimeapi.LinuxContainerResources) Resources {
	return Resources{
		MemoryLimit: positive(m.GetMemoryLimitInBytes()),
		SwapLimit:   positive(m.GetMemorySwapLimitInBytes()),
		CPUShares:   positive(m.GetCpuShares()),
		CPUQuota:    positive(m.GetCpuQuota()),
		CPUPeriod:   positive(m.GetCpuPeriod()),
		OOMScoreAdj: oomScoreAdj(m.GetOomScoreAdj(), m.GetOomScoreAdj() != 0),
		Unified:     m.GetUnified(),
	}
}

// positive is a number that means nothing unless above zero: −1 is "unlimited".
func positive(v int64) Number {
	if v <= 0 {
		return Number{}
	}
	return Number{Value: v, Known: true}
}

// oomScoreAdj is known when the kernel would take it.
func oomScoreAdj(v int64, known bool) Number {
	if !known || v < -1000 || v > 1000 {
		return Number{}
	}
	return Number{Value: v, Known: true}
}
