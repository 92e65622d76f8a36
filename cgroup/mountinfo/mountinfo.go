// Package mountinfo reads the mounts that this process sees (proc_pid_mountinfo(5)).
package mountinfo

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Mount is one mounted filesystem.
type Mount struct {
	Device  string // major:minor of the superblock
	Root    string // the mounted part of the filesystem: "/", except for bind mounts and in some containers
	Point   string
	Type    string
	Options []string // of the superblock; on cgroup v1 they include the controllers
}

// Read returns the mounts of this process's namespace, in the order of creation.
func Read() ([]Mount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	return Parse(f)
}

// Points returns the mount points of this process's namespace, including mounted files.
func Points() ([]string, error) {
	mounts, err := Read()
	points := make([]string, len(mounts))
	for i := range mounts {
		points[i] = mounts[i].Point
	}
	return points, err
}

// Parse parses mountinfo, up to a line of more than 1 MiB, and skips malformed lines:
//
//	35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup none rw,memory
func Parse(r io.Reader) ([]Mount, error) {
	var all []Mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, found := strings.Cut(lines.Text(), " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if found && len(fields) > 4 && strings.HasPrefix(fields[4], "/") && len(rest) > 2 {
			all = append(all, Mount{fields[2], unescape(fields[3]), unescape(fields[4]), rest[0], strings.Split(rest[2], ",")})
		}
	}
	if err := lines.Err(); err != nil {
		return all, fmt.Errorf("read mounts: %w", err)
	}
	return all, nil
}

// unescape decodes octal escapes (\040 is a space).
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
