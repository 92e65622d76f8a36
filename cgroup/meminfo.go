package cgroup

import (
	"bytes"
	"math"
)

// MemInfo is what /proc/meminfo says, in bytes. What it does not say is −1:
// MemAvailable came with linux 3.14. A node without swap has a SwapTotal of 0.
type MemInfo struct {
	Total, Free, Available int64
	InactiveFile           int64 // page cache that was not used lately
	SwapTotal, SwapFree    int64 // zram counts as swap
	Reclaimable            int64 // what the kernel itself uses and may give back: dentries, inodes; 0 if not said
}

// Spare is what of Reclaimable the kernel is sure to give back before it kills, in bytes: all
// but an eighth of MemTotal. Dentries and inodes that a search over all files leaves are
// gigabytes; those in use by what runs, as by a hundred pods, are called reclaimable, too, and
// stay.
func (m MemInfo) Spare() int64 { return max(m.Reclaimable-m.Total/8, 0) }

// parseMemInfo reads lines of "Key:   123 kB" (proc(5)). Lines that are unknown or
// malformed are skipped.
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
		case "SReclaimable", "KReclaimable": // the second holds the first, and more (linux 4.20)
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

// parsePageList reads a line of /proc/zoneinfo (proc(5)): how many pages a processor has on
// its list of a zone ("count:", below "pagesets"); 0 where it is about something else.
func parsePageList(line []byte) int64 {
	count, ok := bytes.CutPrefix(bytes.TrimLeft(line, " "), []byte("count:"))
	if !ok {
		return 0
	}
	if n := parseNumber(bytes.TrimLeft(count, " ")); n <= math.MaxInt32 { // 8 TiB, of one processor
		return max(n, 0)
	}
	return 0
}
