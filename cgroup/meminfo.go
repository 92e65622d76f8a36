package cgroup

import (
	"bytes"
	"math"
)

// MemInfo holds values of /proc/meminfo in bytes. A missing value is −1, except for Reclaimable.
// MemAvailable needs linux 3.14. On a node without swap, SwapTotal is 0.
type MemInfo struct {
	Total, Free, Available int64
	InactiveFile           int64 // page cache that was not used recently
	SwapTotal, SwapFree    int64 // includes zram
	Reclaimable            int64 // kernel memory that can be reclaimed: dentries, inodes; 0 if missing
}

// Spare returns the bytes of Reclaimable that the kernel certainly frees before it kills: all but an
// eighth of MemTotal. A search over all files leaves gigabytes of dentries and inodes, which can be
// freed. Those in use by running programs, such as a hundred pods, also count as reclaimable, but stay.
func (m MemInfo) Spare() int64 { return max(m.Reclaimable-m.Total/8, 0) }

// parseMemInfo parses lines of "Key:   123 kB" (proc(5)). It skips unknown and malformed lines.
func parseMemInfo(b []byte) MemInfo {
	m := MemInfo{-1, -1, -1, -1, -1, -1, 0}
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			continue
		}
		var to *int64
		var back int64
		switch string(line[:colon]) {
		case "MemTotal":
			to = &m.Total
		case "MemFree":
			to = &m.Free
		case "MemAvailable":
			to = &m.Available
		case "Inactive(file)":
			to = &m.InactiveFile
		case "SwapTotal":
			to = &m.SwapTotal
		case "SwapFree":
			to = &m.SwapFree
		case "SReclaimable", "KReclaimable": // KReclaimable (linux 4.20) includes SReclaimable
			to = &back
		default:
			continue
		}
		if n := parseNumber(bytes.TrimLeft(line[colon+1:], " \t")); n >= 0 && n <= math.MaxInt64>>10 {
			*to = n << 10
			m.Reclaimable = max(m.Reclaimable, back)
		}
	}
	return m
}

// parsePageList parses a line of /proc/zoneinfo (proc(5)). It returns the number of pages on a
// processor's list of a zone ("count:", below "pagesets"), and 0 for any other line.
func parsePageList(line []byte) int64 {
	count, ok := bytes.CutPrefix(bytes.TrimLeft(line, " "), []byte("count:"))
	if !ok {
		return 0
	}
	if n := parseNumber(bytes.TrimLeft(count, " ")); n <= math.MaxInt32 { // 8 TiB on one processor
		return max(n, 0)
	}
	return 0
}
