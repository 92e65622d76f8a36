package cri

import (
	"encoding/json"
	"path"
	"strconv"
	"strings"
	"time"
)

// decode reads the fields of a JSON object. It skips a field of the wrong type and reads the others;
// invalid JSON sets nothing.
func decode[T any](s string) (v T) {
	// encoding/json checks the whole text before it stores anything, and continues after a field of the
	// wrong type: its error adds nothing.
	_ = json.Unmarshal([]byte(s), &v)
	return v
}

// listed translates the messages of a list, except those without an id.
func listed[M interface{ GetId() string }, T any](messages []M, translate func(M) T) []T {
	out := make([]T, 0, len(messages))
	for _, m := range messages {
		if m.GetId() != "" {
			out = append(out, translate(m))
		}
	}
	return out
}

// looseInt accepts an integer that fits 64 bits; every other value is unknown. An *int64 would hold 0
// after a value of the wrong type.
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

// pid returns a process id that Linux can give to a container; 0 = none. PID 1 is the node's init and
// never a container.
func (i looseInt) pid() int {
	const maxPID = 1 << 22
	if !i.known || i.value < 2 || i.value > maxPID {
		return 0
	}
	return int(i.value)
}

// maxPath is the kernel's PATH_MAX.
const maxPath = 4096

// cgroupPath returns a cgroup name ("/a/b", "slice:prefix:name"), or "" if it could lead out of the
// hierarchy.
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

// absolute returns an absolute path, cleaned; "" if s is not one.
func absolute(s string) string {
	if !path.IsAbs(s) || len(s) >= maxPath || strings.ContainsRune(s, 0) {
		return ""
	}
	return path.Clean(s)
}

// unixNano converts a CRI timestamp; zero and negative ones become the zero time.
func unixNano(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// first returns the first string that is not empty.
func first(ss ...string) string {
	for _, s := range ss {
		if s != "" {
			return s
		}
	}
	return ""
}
