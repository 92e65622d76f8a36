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
func (m MemInfo) Spare() int64 { return spare(m.Reclaimable, m.Total) }

// spare is Spare of that much memory.
func spare(reclaimable, total int64) int64 { return max(reclaimable-total/8, 0) }

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

// zones adds up the lines of /proc/zoneinfo (proc(5)), in pages.
type zones struct {
	lists int64 // free pages on the processors' lists ("count:", below "pagesets")
	// kept is free memory that the kernel keeps back from programs, and kills before it gives it to them: up to the min
	// watermark of each zone and, in zones that devices need, up to a reserve that grows with the other zones. It is 320 MiB
	// on a PC of 64 GiB, and more with a high vm.min_free_kbytes.
	kept int64
	// managed is all memory, as MemTotal is.
	managed int64

	free, boost, least, low int64 // of the zone of the current lines
}

// add adds a line. It skips lines that it does not know.
func (z *zones) add(line []byte) {
	line = bytes.TrimLeft(line, " ")
	if n, ok := cutPages(line, "count:"); ok {
		z.lists += n
	} else if n, ok := cutPages(line, "pages free "); ok {
		z.free, z.boost, z.least, z.low = n, 0, 0, 0
	} else if n, ok := cutPages(line, "boost "); ok { // a part of min, for a moment only
		z.boost = n
	} else if n, ok := cutPages(line, "min "); ok {
		z.least = max(n-z.boost, 0)
	} else if n, ok := cutPages(line, "low "); ok {
		z.low = n
	} else if n, ok := cutPages(line, "high "); ok && n > z.low && z.low > 0 {
		// Linux 5.0 to 5.15 do not show the boost. It moves low and high, too, but not their distance, which is at least a
		// quarter of min, rounded down.
		z.least = min(z.least, 4*(n-z.low)+3)
	} else if n, ok := cutPages(line, "managed "); ok {
		z.managed += n
	} else if list, ok := bytes.CutPrefix(line, []byte("protection: (")); ok { // after the others
		z.kept += min(z.free, z.least+largestPages(list))
		z.free = 0
	}
}

// largestPages returns the largest number of pages in "0, 3019, 21963)".
func largestPages(list []byte) (most int64) {
	for len(list) > 0 {
		var n []byte
		n, list, _ = bytes.Cut(list, []byte(","))
		pages, _ := cutPages(bytes.TrimRight(n, ")"), "")
		most = max(most, pages)
	}
	return most
}

// cutPages returns the number of pages after a prefix, 0 for one that is malformed.
func cutPages(line []byte, prefix string) (n int64, ok bool) {
	if len(line) < len(prefix) || string(line[:len(prefix)]) != prefix {
		return 0, false
	}
	if n = parseNumber(bytes.TrimLeft(line[len(prefix):], " ")); n > math.MaxInt32 { // 8 TiB
		return 0, true
	}
	return max(n, 0), true
}
