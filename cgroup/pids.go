package cgroup

import "bytes"

// Pids is the number of tasks and its limit. As for the kernel's limits, every thread counts.
type Pids struct {
	Current, Max int64
	OfPods       bool // numbers of the pods cgroup, which is closer to its limit than the node
}

// parseTasks parses the number of tasks from the fourth field of /proc/loadavg, "2/95" (proc(5)). It
// returns −1 if the field is missing.
func parseTasks(b []byte) int64 {
	for range 3 {
		i := bytes.IndexByte(b, ' ')
		if i < 0 {
			return -1
		}
		b = b[i+1:]
	}
	slash := bytes.IndexByte(b, '/')
	if slash < 0 || parseNumber(b[:slash]) < 0 {
		return -1
	}
	return parseNumber(b[slash+1:])
}

// tighter returns the one with the smaller share of its limit left. A Max of 0 or less means no limit.
func (p Pids) tighter(q Pids) Pids {
	switch {
	case q.Max <= 0 || q.Current < 0:
		return p
	case p.Max <= 0:
		return q
	}
	left, other := float64(p.Max-p.Current)/float64(p.Max), float64(q.Max-q.Current)/float64(q.Max)
	if other < left {
		return q
	}
	return p
}
