package cri

import (
	"encoding/json"
	"path"
	"strconv"
	"strings"
	"time"
)

// decode reads as much of a JSON object as fits. A field of the wrong type is
// left out and the others are read; text that is no JSON gives nothing.
func decode(s string, v any) {
	if s == "" {
		return
	}
	// encoding/json checks the whole text before it stores anything, and goes on
	// after a field of the wrong type: its error says nothing that v does not.
	_ = json.Unmarshal([]byte(s), v)
}

// looseInt takes an integer that fits 64 bits and lets everything else be
// unknown: a *int64 would hold 0 after a value of the wrong type.
type looseInt struct {
	value int64
	known bool
}

func (i *looseInt) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseInt(string(b), 10, 64)
	*i = looseInt{value: v, known: err == nil}
	if err != nil {
		i.value = 0
	}
	return nil
}

// pid is a process id Linux can give to a container; 0 = none. 1 is the node's
// init, and in a container's place always a lie.
func (i looseInt) pid() int {
	const maxPID = 1 << 22
	if !i.known || i.value < 2 || i.value > maxPID {
		return 0
	}
	return int(i.value)
}

// maxPath is the kernel's PATH_MAX.
const maxPath = 4096

// cgroupPath lets a cgroup name through ("/a/b", "slice:prefix:name") unless it
// could lead out of the hierarchy.
func cgroupPath(s string) string {
	if len(s) >= maxPath || strings.ContainsAny(s, "\x00\n") {
		return ""
	}
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '/' || r == ':' }) {
		if part == ".." {
			return ""
		}
	}
	return s
}

// absolute lets an absolute path through, cleaned.
func absolute(s string) string {
	if !path.IsAbs(s) || len(s) >= maxPath || strings.ContainsRune(s, 0) {
		return ""
	}
	return path.Clean(s)
}

// unixNano is a CRI time stamp; 0 and before are no time.
func unixNano(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// first is the first string that is not empty.
func first(ss ...string) string {
	for _, s := range ss {
		if s != "" {
			return s
		}
	}
	return ""
}
