package cgroup

import (
	"bytes"
	"math"
)

// parseNumber parses the decimal number at the start of b, up to white space or the end of the line. It
// returns −1 for anything else ("max", a sign, letters, more than an int64).
func parseNumber(b []byte) int64 {
	var n int64
	digits := 0
	for _, c := range b {
		if c == '\n' || c == ' ' || c == '\t' {
			break
		}
		d := int64(c) - '0'
		if d < 0 || d > 9 || n > (math.MaxInt64-d)/10 {
			return -1
		}
		n = 10*n + d
		digits++
	}
	if digits == 0 {
		return -1
	}
	return n
}

// cutLine cuts off the first line, without its newline.
func cutLine(b []byte) (line, rest []byte) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[:i], b[i+1:]
	}
	return b, nil
}

// parseKey finds the number of a key in lines of "key 123", as in memory.stat and cgroup.events. It
// returns −1 if the key is missing, and skips other lines.
func parseKey(b []byte, key string) int64 {
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		if len(line) > len(key) && line[len(key)] == ' ' && string(line[:len(key)]) == key {
			return parseNumber(line[len(key)+1:])
		}
	}
	return -1
}
