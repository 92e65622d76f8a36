package cgroup

import "bytes"

// Pids is how many tasks there are and how many there may be. Threads count, as
// they do for the kernel's limits.
type Pids struct {
	Current, Max int64
	OfPods       bool // those of the pods cgroup, which is nearer to its limit than the node
}

// parseTasks reads how many tasks there are from the fourth field of
// /proc/loadavg, "2/95" (proc(5)); −1 where it is not there.
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

// tighter returns whichever leaves the smaller part of its limit. A limit of 0 or
// less is none.
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
