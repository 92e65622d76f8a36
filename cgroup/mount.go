package cgroup

import (
	"bytes"
	"strings"
)

// mount is what a line of mountinfo says of a mounted cgroup hierarchy.
type mount struct {
	root    string // the cgroup that is mounted, "/" but in some containers
	point   string
	v2      bool
	options []string // of the hierarchy: on v1, its controllers are among them
}

// parseMounts finds the cgroup hierarchies in /proc/<pid>/mountinfo (proc(5)):
//
//	35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup none rw,memory
//
// Lines of other filesystems and malformed ones are skipped.
func parseMounts(b []byte) []mount {
	var mounts []mount
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		before, after, found := bytes.Cut(line, []byte(" - "))
		fields, rest := strings.Fields(string(before)), strings.Fields(string(after))
		if !found || len(fields) < 5 || len(rest) < 3 || (rest[0] != "cgroup" && rest[0] != "cgroup2") {
			continue
		}
		mounts = append(mounts, mount{
			root: unescape(fields[3]), point: unescape(fields[4]),
			v2: rest[0] == "cgroup2", options: strings.Split(rest[2], ","),
		})
	}
	return mounts
}

// unescape undoes the octal escapes of mountinfo ("\040" is a space).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && isOctal(s[i+1], '3') && isOctal(s[i+2], '7') && isOctal(s[i+3], '7') {
			out.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

func isOctal(c, most byte) bool { return c >= '0' && c <= most }
